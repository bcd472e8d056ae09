package chat

import (
	"github.com/warmpath/warmpath/shared/jsontext"
)

// Declarative is a simple chat template: a text before and after each turn's
// content, by role. It is what most templates without tools come to.
type Declarative struct {
	BOS           string         // the beginning of every prompt
	Turns         [numTurns]Turn // by role; see ParseDeclarative
	Generation    string         // the generation prompt
	DefaultSystem string         // the content of a system turn for conversations without one
	HasDefault    bool
	Trim          bool // white space around contents is cut off, as by Jinja's trim
	IgnoreTools   bool // the template doesn't show tools and tool calls; otherwise requests with them stop
}

// Turn is what stands around a turn's content.
type Turn struct {
	Prefix, Suffix string
	Declared       bool
}

const numTurns = int(roleDeveloper) + 1

// chatML is the template of many small models.
var chatML = Declarative{
	Turns: [numTurns]Turn{
		roleSystem:    {imStart + "system\n", imEnd, true},
		roleUser:      {imStart + "user\n", imEnd, true},
		roleAssistant: {imStart + "assistant\n", imEnd, true},
		roleTool:      {imStart + "tool\n", imEnd, true},
	},
	Generation:  imStart + "assistant\n",
	IgnoreTools: true,
}

// declarative writes the turns as d says.
func (r *Renderer) declarative(d *Declarative) {
	if !d.IgnoreTools && len(r.tools) > 0 {
		r.stop(Unknown)
		return
	}
	r.lit(d.BOS)
	if d.HasDefault && r.msgs[0].role != roleSystem {
		t := &d.Turns[roleSystem]
		r.lit(t.Prefix)
		r.lit(d.DefaultSystem)
		r.lit(t.Suffix)
		r.end()
	}
	for i := range r.msgs {
		m := &r.msgs[i]
		t := &d.Turns[m.role]
		switch {
		case !r.going() || !r.enter(m):
			return
		case !t.Declared || m.numCalls > 0 && !d.IgnoreTools:
			r.stop(Unknown)
			return
		}
		r.lit(t.Prefix)
		if d.Trim {
			if !r.trimmed(m, i, t.Suffix) {
				return
			}
		} else if !r.content(m, i) {
			return
		}
		r.lit(t.Suffix)
		r.end()
	}
	r.generate(d.Generation, "")
}

// PlaceError says where a declared template is wrong and what to write instead.
type PlaceError struct {
	Place         string // such as user.prefix; "" is the whole
	Fault, Remedy string
}

func (e *PlaceError) Error() string {
	place := e.Place
	if place == "" {
		place = "template"
	}
	return place + ": " + e.Fault + "; " + e.Remedy
}

// maxDeclarative bounds the text of a declared template.
const maxDeclarative = 64 << 10

// ParseDeclarative reads a declared template:
//
//	{
//	  "bos": "<s>",                                    optional
//	  "system":    {"prefix": "...", "suffix": "..."}, each role is optional; turns of a role
//	  "user":      {"prefix": "...", "suffix": "..."}, that isn't declared end the exact text
//	  "assistant": {...}, "tool": {...}, "developer": {...},
//	  "generation": "...",                             the generation prompt
//	  "default_system": "...",                         optional
//	  "trim": false, "ignore_tools": false             optional
//	}
//
// Unknown and repeated names and wrong types are refused with a *PlaceError.
func ParseDeclarative(text []byte) (*Declarative, error) {
	doc := new(jsontext.Doc)
	if len(text) > maxDeclarative {
		return nil, &PlaceError{"", "longer than 64 KiB", "shorten its texts"}
	}
	switch doc.Scan(text) {
	case jsontext.None:
	case jsontext.NotObject:
		return nil, &PlaceError{"", "not an object", "write {...}"}
	default:
		return nil, &PlaceError{"", "not valid JSON", "check commas, quotes and braces"}
	}
	p := declParser{text: text}
	p.w.Reset(doc)
	d := new(Declarative)
	seen := uint(0)
	for t := doc.Tops(); t.Next(); {
		name, at := string(t.Name), t.Value
		if bit := p.bit(name); seen&bit != 0 {
			p.fail(name, "given twice", "keep one")
		} else {
			seen |= bit
		}
		switch name {
		case "bos":
			d.BOS = p.string(name, at)
		case "generation":
			d.Generation = p.string(name, at)
		case "default_system":
			d.DefaultSystem, d.HasDefault = p.string(name, at), true
		case "trim":
			d.Trim = p.bool(name, at)
		case "ignore_tools":
			d.IgnoreTools = p.bool(name, at)
		case "system", "user", "assistant", "tool", "developer":
			d.Turns[roleOf(t.Name)] = p.turn(name, at)
		default:
			p.fail(name, "not a field of a template", "use bos, system, user, assistant, tool, developer, generation, default_system, trim or ignore_tools")
		}
	}
	if !d.Turns[roleUser].Declared {
		p.fail("user", "missing", `write {"prefix": "...", "suffix": "..."}`)
	}
	if !d.Turns[roleAssistant].Declared {
		p.fail("assistant", "missing", `write {"prefix": "...", "suffix": "..."}`)
	}
	if d.HasDefault && !d.Turns[roleSystem].Declared {
		p.fail("default_system", "given without system", `declare "system" too`)
	}
	if p.err != nil {
		return nil, p.err
	}
	return d, nil
}

// declParser keeps the first error.
type declParser struct {
	text []byte
	w    jsontext.Walker
	err  error
}

//go:noinline
func (p *declParser) fail(place, fault, remedy string) {
	if p.err == nil {
		p.err = &PlaceError{place, fault, remedy}
	}
}

var declNames = [...]string{
	"bos", "generation", "default_system", "trim", "ignore_tools",
	"system", "user", "assistant", "tool", "developer", "prefix", "suffix",
}

// bit returns the bit of a known name, 0 for others.
func (p *declParser) bit(name string) uint {
	for i, known := range declNames {
		if known == name {
			return 1 << i
		}
	}
	return 0
}

func (p *declParser) string(place string, at int) string {
	if p.text[at] != '"' {
		p.fail(place, "not a string", `write "..."`)
		return ""
	}
	end, _ := p.w.StringEnd(at + 1)
	text, ok := jsontext.AppendText(nil, p.text[at+1:end])
	if !ok {
		p.fail(place, "not Unicode text", "write it in UTF-8, surrogates in pairs")
	}
	return string(text)
}

func (p *declParser) bool(place string, at int) bool {
	if c := p.text[at]; c != 't' && c != 'f' {
		p.fail(place, "neither true nor false", "write true or false")
	}
	return p.text[at] == 't'
}

func (p *declParser) turn(place string, at int) Turn {
	t := Turn{Declared: true}
	if p.text[at] != '{' {
		p.fail(place, "not an object", `write {"prefix": "...", "suffix": "..."}`)
		return t
	}
	seen := uint(0)
	for i := at + 1; ; {
		m, ok := p.w.Member(i)
		if !ok {
			break
		}
		name := string(m.Name)
		if bit := p.bit(name); seen&bit != 0 {
			p.fail(place+"."+name, "given twice", "keep one")
		} else {
			seen |= bit
		}
		switch name {
		case "prefix":
			t.Prefix = p.string(place+"."+name, m.Value)
		case "suffix":
			t.Suffix = p.string(place+"."+name, m.Value)
		default:
			p.fail(place+"."+name, "not a field of a turn", "use prefix and suffix")
		}
		i = p.w.Skip(m.Value)
	}
	return t
}

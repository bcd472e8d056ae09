package chat

import "strconv"

const (
	llamaStart = "<|start_header_id|>"
	llamaHead  = "<|end_header_id|>\n\n"
	llamaEnd   = "<|eot_id|>"
	llamaGen   = llamaStart + "assistant" + llamaHead
)

// llama3 is the template of Llama 3: every turn alike.
func (r *Renderer) llama3() {
	r.lit("<|begin_of_text|>")
	for i := range r.msgs {
		if !r.llamaTurn(i) {
			return
		}
	}
	r.generate(llamaGen, "")
}

// llamaTurn writes turn i as its role and trimmed text.
func (r *Renderer) llamaTurn(i int) bool {
	m := &r.msgs[i]
	if !r.going() || !r.enter(m) {
		return false
	}
	r.lit(llamaStart)
	r.put(m.name)
	r.lit(llamaHead)
	if !r.trimmed(m, i, llamaEnd) {
		return false
	}
	r.lit(llamaEnd)
	r.end()
	return true
}

// llamaTools are the words before the definitions in a user turn; in the system
// turn they begin otherwise.
const (
	llamaToolsUser = "Given the following functions, please respond with a JSON for a function call " +
		"with its proper arguments that best answers the given prompt.\n\n"
	llamaToolsSystem = "You have access to the following functions. To call a function, please respond with JSON for a function call."
	llamaToolsFormat = `Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.` +
		"Do not use variables.\n\n"
)

// llama31 is the template of Llama 3.1, 3.2 and 3.3: a system turn with dates
// comes always, tools stand in the first user turn (or in the system turn),
// what tools answer is an ipython turn. 3.2 prints today's date, the others a
// fixed one.
func (r *Renderer) llama31() {
	turns := 0 // the first that isn't written yet
	var system *message
	if r.msgs[0].role == roleSystem {
		system, turns = &r.msgs[0], 1
	}
	r.lit("<|begin_of_text|>" + llamaStart + "system" + llamaHead)
	if len(r.tools) > 0 {
		r.lit("Environment: ipython\n")
	}
	r.lit("Cutting Knowledge Date: December 2023\nToday Date: ")
	switch {
	case r.opts.date != nil:
		r.put(r.opts.date)
	case r.tmpl.family == familyLlama32:
		r.out = appendDay(r.out, r.day)
	default:
		r.lit("26 Jul 2024")
	}
	r.lit("\n\n")
	if len(r.tools) > 0 && r.opts.toolsApart {
		r.lit(llamaToolsSystem)
		r.llamaTools()
	}
	if system != nil && !r.trimmed(system, 0, llamaEnd) {
		return
	}
	r.lit(llamaEnd)
	r.end()
	if len(r.tools) > 0 && !r.opts.toolsApart {
		if turns == len(r.msgs) {
			r.stop(Refused)
			return
		}
		// Whatever role the first turn has.
		m := &r.msgs[turns]
		if !r.enter(m) {
			return
		}
		r.lit(llamaStart + "user" + llamaHead + llamaToolsUser)
		r.llamaTools()
		if !r.going() || !r.trimmed(m, turns, llamaEnd) {
			return
		}
		r.lit(llamaEnd)
		r.end()
		turns++
	}
	for i := turns; i < len(r.msgs); i++ {
		m := &r.msgs[i]
		ok := false
		switch {
		case m.hasCalls:
			ok = r.llamaCall(m, i)
		case m.role == roleTool || string(m.name) == "ipython":
			ok = r.llamaAnswer(m, i)
		default:
			ok = r.llamaTurn(i)
		}
		if !ok {
			return
		}
	}
	r.generate(llamaGen, "")
}

// llamaTools writes the definitions, spread over lines.
func (r *Renderer) llamaTools() {
	r.lit(llamaToolsFormat)
	for i := range r.tools {
		r.dumpTool(&r.tools[i], 4)
		if !r.going() {
			return
		}
		r.lit("\n\n")
	}
}

// llamaCall writes an assistant's turn with a tool call, whose text is left out.
func (r *Renderer) llamaCall(m *message, i int) bool {
	if !r.going() || !r.enter(m) {
		return false
	}
	if m.numCalls != 1 || r.resumes(i) {
		r.stop(Refused) // one call at a time; there is no text to go on with
		return false
	}
	c := &r.callsOf(m)[0]
	r.lit(llamaGen + `{"name": "`)
	r.put(c.name)
	r.lit(`", "parameters": `)
	r.arguments(c)
	r.lit("}" + llamaEnd)
	r.end()
	return r.stopped == Complete
}

// llamaAnswer writes what a tool answered, as a JSON string.
func (r *Renderer) llamaAnswer(m *message, i int) bool {
	if !r.going() || !r.enter(m) {
		return false
	}
	r.lit(llamaStart + "ipython" + llamaHead)
	from := len(r.out)
	r.out = appendJSONString(r.out, m.content)
	if r.resumes(i) {
		if len(r.out)-from != len(m.content)+2 {
			r.stop(Refused) // escaped, so the engine doesn't find its text
		}
		r.out = r.out[:len(r.out)-1]
		return false
	}
	r.lit(llamaEnd)
	r.end()
	return true
}

var months = [12]string{"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"}

// appendDay appends a day, counted from 1970-01-01, as 04 Jul 2026.
func appendDay(dst []byte, day int) []byte {
	year, month, date := civil(day)
	dst = append(dst, byte('0'+date/10), byte('0'+date%10), ' ')
	dst = append(append(dst, months[month-1]...), ' ')
	return strconv.AppendInt(dst, int64(year), 10)
}

// civil returns the date of a day counted from 1970-01-01, for years from 1 on.
// The year is taken to begin in March, so that leap days end it.
func civil(day int) (year, month, date int) {
	day += 719468 // from 0000-03-01
	era := day / 146097
	day -= era * 146097
	yearOfEra := (day - day/1460 + day/36524 - day/146096) / 365
	day -= 365*yearOfEra + yearOfEra/4 - yearOfEra/100
	shifted := (5*day + 2) / 153 // month from March
	date = day - (153*shifted+2)/5 + 1
	year, month = era*400+yearOfEra, shifted+3
	if month > 12 {
		year, month = year+1, month-12
	}
	return year, month, date
}

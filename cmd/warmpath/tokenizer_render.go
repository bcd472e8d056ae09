package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/warmpath/warmpath/shared/jsontext"
	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/chat"
)

// endpoints are the values of --endpoint.
var endpoints = map[string]chat.Endpoint{
	"chat": chat.Chat, "completions": chat.Completions, "responses": chat.Responses, "messages": chat.Messages, "embeddings": chat.Embeddings,
}

// rendered is the machine's form of what render shows.
type rendered struct {
	Text       string   `json:"text"`
	IDs        []uint32 `json:"ids,omitempty"`
	Turns      []int    `json:"turns"`                // byte offsets in text after each turn
	Breaks     []int    `json:"breaks,omitempty"`     // byte offsets where the engine tokenises apart
	TurnTokens []int    `json:"turnTokens,omitempty"` // ids before each of them
	Exact      bool     `json:"exact"`
	Stopped    string   `json:"stopped"`    // complete, or why the text is only the beginning
	AddSpecial bool     `json:"addSpecial"` // the engine's tokenizer adds BOS, and ids has it
}

func renderCommand() *cobra.Command {
	var vocabulary, template, engine, endpoint, date, color string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "render --template NAME [--vocab FILE.wpv] [BODY-FILE]",
		Short: "Show the prompt of a request with its tokens",
		Long: `Reads a request's body (JSON, as a client posts it) from a file or standard input
and prints the prompt that the engine makes of it. With a vocabulary on a terminal,
neighbouring tokens have different colours, ↵ stands for a newline in a token,
‹e4b8› for bytes that are part of a character, and ▏ ends a turn: up to there a
follow-up request can share the cache.

A template is a family's name or a file with a declared one (docs/tokenizer.md).
Where a request can't be rendered exactly, the text ends with the last turn that
can, and the reason is printed.

Families: ` + strings.Join(chat.Families(), ", ") + `.`,
		Example: `  warmpath tokenizer render --template qwen3 --vocab qwen3.wpv request.json
  echo '{"messages":[{"role":"user","content":"Hi"}]}' |
    warmpath tokenizer render --template llama3.1 --engine sglang
  warmpath tokenizer render --template qwen3 --vocab qwen3.wpv --json request.json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			tmpl, err := chooseTemplate(template, engine)
			if err != nil {
				return err
			}
			day, err := dayOf(date)
			if err != nil {
				return err
			}
			in, err := input(cmd, args)
			if err != nil {
				return err
			}
			defer in.Close()
			body, err := readText(in)
			if err != nil {
				return fmt.Errorf("read the body: %w", err)
			}
			var enc *bpe.Encoder
			if vocabulary != "" {
				if enc, err = openVocabulary(vocabulary); err != nil {
					return err
				}
			}
			shown, err := renderBody(body, tmpl, endpoint, day, enc)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if asJSON {
				lines := json.NewEncoder(out)
				lines.SetEscapeHTML(false)
				return lines.Encode(shown)
			}
			colored, err := wantsColor(color, out)
			if err != nil {
				return err
			}
			if enc != nil && colored {
				_, err = out.Write(paint(enc, shown))
			} else {
				_, err = io.WriteString(out, shown.Text)
			}
			fmt.Fprintln(cmd.ErrOrStderr(), shown.summary(enc != nil))
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&template, "template", "", "family of the chat template, or a `file` with a declared one")
	f.StringVar(&engine, "engine", "vllm", "whose reading of the request: vllm or sglang")
	f.StringVar(&endpoint, "endpoint", "", "chat, completions, responses, messages or embeddings (default: what the body looks like)")
	f.StringVar(&vocabulary, "vocab", "", "compiled vocabulary (default: text only)")
	f.StringVar(&date, "date", "", "the day for templates that print one, such as 2026-11-29 (default: today)")
	f.StringVar(&color, "color", "auto", "colours: auto, always or never")
	f.BoolVar(&asJSON, "json", false, "print text, ids, turn ends and the reason to stop as JSON")
	return cmd
}

// chooseTemplate finds a family by name or reads a declared template.
func chooseTemplate(name, engine string) (chat.Template, error) {
	if engine != "vllm" && engine != "sglang" {
		return chat.Template{}, fmt.Errorf("--engine %q: want vllm or sglang", engine)
	}
	if t, ok := chat.ByName(name, engine); ok {
		return t, nil
	}
	families := strings.Join(chat.Families(), ", ")
	if name == "" {
		return chat.Template{}, fmt.Errorf("say how the prompt is put together: --template NAME, one of %s, or a file with a declared template", families)
	}
	if slices.Contains(chat.Families(), name) {
		return chat.Template{}, fmt.Errorf("--template %s is not known for --engine %s: how that engine renders it has not been compared yet", name, engine)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return chat.Template{}, fmt.Errorf("--template %q is no family (there are %s) and no file", name, families)
	}
	declared, err := chat.ParseDeclarative(text)
	if err != nil {
		return chat.Template{}, fmt.Errorf("template %s: %w", name, err)
	}
	t, _ := chat.WithDeclarative(declared, engine) // the engine is a known one
	return t, nil
}

// dayOf returns the days since 1970 of a date; the local one of today without.
func dayOf(date string) (int, error) {
	day := time.Now()
	if date != "" {
		var err error
		if day, err = time.Parse(time.DateOnly, date); err != nil {
			return 0, fmt.Errorf("--date %q: write it as 2026-11-29", date)
		}
	}
	utc := time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, time.UTC)
	return int(utc.Unix() / 86400), nil
}

// renderBody renders a body and, with an encoder, tokenises the prompt.
func renderBody(body []byte, tmpl chat.Template, endpoint string, day int, enc *bpe.Encoder) (rendered, error) {
	doc := new(jsontext.Doc)
	if fault := doc.Scan(body); fault != jsontext.None {
		return rendered{}, errors.New("the body is no request: " + faultText(fault, body))
	}
	req := chat.Request{Doc: doc, Day: day, Endpoint: endpoints[endpoint], TakeBreaks: true}
	if endpoint == "" {
		req.Endpoint = guessEndpoint(body)
	} else if req.Endpoint == 0 {
		return rendered{}, fmt.Errorf("--endpoint %q: want chat, completions, responses, messages or embeddings", endpoint)
	}
	res := new(chat.Renderer).Render(tmpl, req, 0)
	shown := rendered{Text: string(res.Text), Turns: slices.Clone(res.Ends), Breaks: slices.Clone(res.Breaks), Exact: res.Stopped == chat.Complete, Stopped: res.Stopped.String(), AddSpecial: res.AddSpecial}
	if shown.Turns == nil {
		shown.Turns = []int{}
	}
	if enc != nil {
		shown.IDs, shown.TurnTokens = encodeApart(enc, res)
	}
	return shown, nil
}

// encodeApart tokenises a prompt as the engine does: where it has breaks, piece
// by piece. It returns the ids and how many of them lie before each turn's end.
func encodeApart(enc *bpe.Encoder, res chat.Result) (ids []uint32, turnTokens []int) {
	turnTokens = make([]int, len(res.Ends))
	from, turn := 0, 0
	for _, to := range append(slices.Clone(res.Breaks), len(res.Text)) {
		first, before := turn, len(ids)
		var marks []int
		for ; turn < len(res.Ends) && res.Ends[turn] <= to; turn++ {
			marks = append(marks, res.Ends[turn]-from)
		}
		ids, _ = enc.Encode(ids, res.Text[from:to], bpe.Options{AddSpecial: res.AddSpecial && from == 0, Marks: marks, MarkIDs: turnTokens[first:turn]})
		for i := first; i < turn; i++ {
			turnTokens[i] += before
		}
		from = to
	}
	return ids, turnTokens
}

// guessEndpoint tells by its fields what a body was posted to. Responses and
// Anthropic bodies that look like another kind need --endpoint.
func guessEndpoint(body []byte) chat.Endpoint {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(body, &fields) // it was scanned; what doesn't fit leaves it empty
	switch {
	case fields["messages"] != nil && fields["system"] != nil:
		return chat.Messages
	case fields["messages"] != nil:
		return chat.Chat
	case fields["prompt"] != nil:
		return chat.Completions
	case fields["input"] != nil:
		return chat.Responses
	}
	return chat.Chat
}

func faultText(fault jsontext.Fault, body []byte) string {
	switch fault {
	case jsontext.TooDeep:
		return "it is nested too deeply"
	case jsontext.TooLong:
		return "it is too long"
	case jsontext.NotObject:
		return "want a JSON object, {\"messages\": ...}"
	}
	var any json.RawMessage
	if err := json.Unmarshal(body, &any); err != nil {
		return "it is not valid JSON: " + err.Error()
	}
	return "it is not valid JSON"
}

func wantsColor(choice string, out io.Writer) (bool, error) {
	switch choice {
	case "always":
		return true, nil
	case "never":
		return false, nil
	case "auto":
		f, ok := out.(*os.File)
		return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "", nil
	}
	return false, fmt.Errorf("--color %q: want auto, always or never", choice)
}

func (r rendered) summary(tokens bool) string {
	var b strings.Builder
	if tokens {
		fmt.Fprintf(&b, "%d tokens, ", len(r.IDs))
	}
	fmt.Fprintf(&b, "%d bytes, %d turns", len(r.Text), len(r.Turns))
	if r.AddSpecial {
		b.WriteString(", with the tokens around a completion's prompt")
	}
	if !r.Exact {
		fmt.Fprintf(&b, "; exact up to here, then stopped: %s", r.Stopped)
	}
	return b.String()
}

// Backgrounds that neighbouring tokens have in turn, readable under black.
var backgrounds = []string{"\x1b[30;48;5;153m", "\x1b[30;48;5;187m", "\x1b[30;48;5;157m", "\x1b[30;48;5;224m", "\x1b[30;48;5;189m"}

const (
	addedColor = "\x1b[1;97;48;5;60m"
	plainColor = "\x1b[0m"
)

// paint writes the tokens with alternating backgrounds.
func paint(enc *bpe.Encoder, r rendered) []byte {
	var out bytes.Buffer
	turn := 0
	endTurns := func(ids int) {
		for ; turn < len(r.TurnTokens) && r.TurnTokens[turn] <= ids; turn++ {
			out.WriteString("▏")
		}
	}
	color := 0
	for i, id := range r.IDs {
		if i > 0 {
			endTurns(i)
		}
		background := backgrounds[color%len(backgrounds)]
		if _, added := enc.Vocab().FindAdded(id); added {
			background = addedColor
		} else {
			color++
		}
		paintToken(&out, enc.Decode(nil, []uint32{id}, false), background)
	}
	endTurns(len(r.IDs))
	out.WriteByte('\n')
	return out.Bytes()
}

// paintToken makes every byte of a token visible.
func paintToken(out *bytes.Buffer, token []byte, background string) {
	out.WriteString(background)
	for len(token) > 0 {
		r, size := utf8.DecodeRune(token)
		switch {
		case r == utf8.RuneError && size == 1:
			n := 1
			for n < len(token) {
				if r, size := utf8.DecodeRune(token[n:]); r != utf8.RuneError || size > 1 {
					break
				}
				n++
			}
			fmt.Fprintf(out, "‹%x›", token[:n])
			size = n
		case r == '\n':
			out.WriteString("↵" + plainColor + "\n" + background)
		case r == '\t':
			out.WriteString("→   ")
		case unicode.IsControl(r):
			fmt.Fprintf(out, "‹%x›", token[:size])
		default:
			out.Write(token[:size])
		}
		token = token[size:]
	}
	out.WriteString(plainColor)
}

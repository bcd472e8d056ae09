//go:build !wasm

package plugin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/body"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/wire"
	"github.com/warmpath/warmpath/tokenizer/pretoken"
	"github.com/warmpath/warmpath/tokenizer/vocab"
	"github.com/warmpath/warmpath/tokenizer/vocabtest"
)

// exactly is an inspector whose only pool is in exact mode.
func exactly(t *testing.T) *Inspector { return exactlyBy(t) }

// approximately is one whose pools have no vocabulary.
func approximately(t *testing.T, policy ...string) *Inspector {
	t.Helper()
	host := abi.NewFake()
	host.Clock = 1_700_000_000_000_000_000
	t.Cleanup(abi.UseFake(host))
	publish(host, policy...)
	return NewInspector("default", 1)
}

func exactlyBy(t *testing.T, policies ...string) *Inspector {
	t.Helper()
	spec := vocabtest.Train(strings.Repeat("tell me more about the tide and the harbour ", 3), pretoken.Qwen2, 40)
	for i, content := range []string{"<|im_start|>", "<|im_end|>"} {
		spec.Added = append(spec.Added, vocab.AddedSpec{ID: uint32(len(spec.Tokens) + i), Content: content, Special: true})
	}
	file, err := spec.Compile()
	if err != nil {
		t.Fatal(err)
	}
	name, err := vocab.Hash(file)
	if err != nil {
		t.Fatal(err)
	}
	hash, _ := policy.ParseHash(name)
	host := abi.NewFake()
	host.Clock = 1_700_000_000_000_000_000
	t.Cleanup(abi.UseFake(host))
	keys := wire.NewKeys("default")
	for n := range wire.Shards(len(file)) {
		host.Shared[keys.Shard(hash, n)] = abi.FakeShared{Value: file[n*wire.ShardBytes:][:wire.ShardSize(len(file), n)], CAS: 1}
	}
	exact := fmt.Sprintf(`[{"pool":"default","vocab":%q,"bytes":%d,"template":"qwen3","engine":"vllm","active":true}]`, name, len(file))
	host.Shared[keys.Exact()] = abi.FakeShared{Value: []byte(exact), CAS: 1}
	publish(host, policies...)
	i := NewInspector("default", 1)
	if !i.LoadVocabularies(host.Clock) {
		t.Fatalf("no vocabulary: %v", host.Logs)
	}
	return i
}

// inspectors make one by the mode of its pool.
var inspectors = map[string]func(*testing.T, ...string) *Inspector{"exact": exactlyBy, "approximate": approximately}

func (i *Inspector) chat(messages ...string) Reading {
	raw := []byte(`{"model":"m","messages":[` + strings.Join(messages, ",") + `]}`)
	r := i.Read(raw, body.ChatCompletions, "", "", 1_700_000_000_000_000_000)
	r.Checkpoints = slices.Clone(r.Checkpoints)
	return r
}

func said(role, text string) string { return `{"role":"` + role + `","content":"` + text + `"}` }

func TestAWarmVMHasTheCheckpointsOfAColdOne(t *testing.T) {
	warm := exactly(t)
	tide := strings.Repeat(`tell me more about the tide\n`, 60)
	messages := []string{said("system", tide)}
	var before []fingerprint.Checkpoint
	for turn := range 6 {
		messages = append(messages, said("user", tide+fmt.Sprint(turn)))
		got, want := warm.chat(messages...), exactly(t).chat(messages...)
		if got.Mode != "exact" || got.Tokens < 100*(turn+1) {
			t.Fatalf("turn %d: %+v", turn, got)
		}
		if diff := cmp.Diff(want.Checkpoints, got.Checkpoints); diff != "" || want.Tokens != got.Tokens {
			t.Fatalf("turn %d: %d tokens warm, %d cold (-cold +warm):\n%s", turn, got.Tokens, want.Tokens, diff)
		}
		if known := got.prompt.encoded.Memoised; turn > 0 && known < len(tide)*turn {
			t.Errorf("turn %d: %d bytes known", turn, known)
		}
		for _, c := range before {
			if c.TurnEnd && !slices.ContainsFunc(got.Checkpoints, func(d fingerprint.Checkpoint) bool { return c.End == d.End && c.Fingerprint == d.Fingerprint }) {
				t.Errorf("turn %d doesn't repeat the end of a turn at unit %d", turn, c.End)
			}
		}
		before = got.Checkpoints
		messages = append(messages, said("assistant", "more about the harbour"))
	}
}

func TestWhatLiesBeyondTheRingsKeyIsCountedAndJudged(t *testing.T) {
	i := exactly(t)
	long := said("user", strings.Repeat("tell me more ", 1000))
	whole := i.chat(long, said("user", "and the tide"))
	if whole.Mode != "exact" || whole.Reason != body.OK {
		t.Fatalf("%+v", whole)
	}
	// A picture ends what is exact; the text behind it counts all the same.
	picture := `{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}},{"type":"text","text":"` + strings.Repeat("the harbour ", 1000) + `"}]}`
	if r := i.chat(long, picture); r.Mode != "exact" || r.Tokens < whole.Tokens+2500 {
		t.Errorf("%d tokens with a picture and 12 KB behind it, %d without; mode %s", r.Tokens, whole.Tokens, r.Mode)
	}
	if r := i.chat(long, `7`); r.Reason != body.BadPromptType || len(r.Checkpoints) > 0 {
		t.Errorf("a message that is a number: %v, %d checkpoints", r.Reason, len(r.Checkpoints))
	}
}

// A list of prompts is looked up by its first and weighs what all of them do.
func TestTheLoadOfAListIsThatOfAllItsPrompts(t *testing.T) {
	const now = 1_700_000_000_000_000_000
	prompts := func(n int) []byte {
		raw := `{"model":"m","prompt":["` + strings.Repeat("tell me more ", 400) + `"`
		for range n - 1 {
			raw += `,"` + strings.Repeat("about the tide ", 400) + `"`
		}
		return []byte(raw + `]}`)
	}
	for mode, inspector := range inspectors {
		t.Run(mode, func(t *testing.T) {
			i := inspector(t)
			one := i.Read(prompts(1), body.Completions, "", "", now)
			key := slices.Clone(one.Checkpoints)
			three := i.Read(prompts(3), body.Completions, "", "", now)
			if one.Mode != mode || three.Mode != mode || len(key) == 0 || !slices.Equal(key, three.Checkpoints) {
				t.Errorf("%s, %s: the key isn't the first prompt's", one.Mode, three.Mode)
			}
			if more := three.Tokens - one.Tokens; more < 2*400*15/4-100 || more > 2*400*15/4+100 {
				t.Errorf("two more prompts of 6,000 bytes weigh %d tokens", more)
			}
		})
	}
}

// What engines keep apart has keys of its own: of adapters, of other weights under an adapter's
// name, and of salts. The base model's are one, under whatever name.
func TestKeysAreOfAnAdapterItsWeightsAndTheSalt(t *testing.T) {
	const now = 1_700_000_000_000_000_000
	policy := func(generation int) string {
		return fmt.Sprintf(`{"pools":[{"name":"default","models":["*","m","alias"],"adapters":{"sql":%d,"law":7}}]}`, generation)
	}
	for mode, inspector := range inspectors {
		t.Run(mode, func(t *testing.T) {
			key := func(generation int, model, salt string) (first uint64) {
				raw := `{"model":"` + model + `","cache_salt":"` + salt + `","messages":[` + said("user", strings.Repeat("tell me more ", 40)) + `]}`
				r := inspector(t, policy(generation)).Read([]byte(raw), body.ChatCompletions, "", "", now)
				if r.Mode != mode || len(r.Checkpoints) == 0 {
					t.Fatalf("%+v", r)
				}
				return r.Checkpoints[0].Fingerprint
			}
			seen := map[uint64]string{key(7, "m", ""): "the base model"}
			for name, k := range map[string]uint64{
				"an adapter": key(7, "sql", ""), "its next weights": key(8, "sql", ""), "another adapter": key(7, "law", ""), "a salt": key(7, "m", "acme"),
			} {
				if other, clash := seen[k]; clash {
					t.Errorf("%s has the key of %s", name, other)
				}
				seen[k] = name
			}
			for name, same := range map[string]bool{
				"an alias": key(7, "m", "") == key(8, "alias", ""), "other weights of another adapter": key(7, "law", "") == key(8, "law", ""),
			} {
				if !same {
					t.Errorf("%s changes the key", name)
				}
			}
		})
	}
}

// Gateways with a vocabulary and without one send a prompt that nobody holds to the same worker.
func TestTheRingsKeyIsTheSameInBothModes(t *testing.T) {
	const now = 1_700_000_000_000_000_000
	for _, words := range []int{10, 70, 80, 200, 1000} {
		raw := []byte(`{"model":"m","messages":[` + said("user", strings.Repeat("tell me more ", words)) + `]}`)
		keys := map[string]uint64{}
		for mode, inspector := range inspectors {
			t.Run(fmt.Sprint(words, mode), func(t *testing.T) {
				r := inspector(t).Read(raw, body.ChatCompletions, "", "", now)
				if keys[mode] = r.prompt.ringKey; r.Mode != mode || keys[mode] == 0 {
					t.Errorf("%+v", r)
				}
			})
		}
		if keys["exact"] != keys["approximate"] {
			t.Errorf("%d words: %x of tokens, %x of text", words, keys["exact"], keys["approximate"])
		}
	}
}

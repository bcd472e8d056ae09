package workload

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warmpath/warmpath/sim/text"
)

func newDemo(t testing.TB, change func(*Spec)) *Workload {
	t.Helper()
	spec := Demo()
	if change != nil {
		change(&spec)
	}
	w, err := New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func within(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got/want-1) > tolerance {
		t.Errorf("%s is %.4g, want %.4g within %.0f %%", what, got, want, 100*tolerance)
	}
}

func TestPlanFollowsTheSpec(t *testing.T) {
	spec := Demo()
	w := newDemo(t, nil)
	d := w.Distribution()
	if d.Requests != spec.Requests || w.Requests() != spec.Requests {
		t.Errorf("%d requests", d.Requests)
	}
	within(t, "mean system prompt", d.SystemPrompt.Mean, spec.SystemPrompt.MeanTokens, 0.01)
	within(t, "mean answer", d.Answer.Mean, spec.Answer.MeanTokens, 0.04)
	within(t, "mean turns", d.Turns.Mean, float64(spec.Turns.Min+spec.Turns.Max)/2, 0.05)
	last := w.Sessions[len(w.Sessions)-1].Start
	within(t, "sessions a second", float64(d.Sessions)/last.Seconds(), spec.RequestsPerSecond/7.5, 0.08)
	squares := 0.0
	for i := range spec.Tenants.Count {
		x := float64(w.SystemPromptTokens(i)) - d.SystemPrompt.Mean
		squares += x * x
	}
	cv := math.Sqrt(squares/float64(spec.Tenants.Count)) / d.SystemPrompt.Mean
	within(t, "cv of system prompts", cv, spec.SystemPrompt.CV, 0.1)
	for i, s := range w.Sessions {
		if i < len(w.Sessions)-1 && (len(s.Turns) < spec.Turns.Min || len(s.Turns) > spec.Turns.Max) {
			t.Errorf("session %d has %d turns", i, len(s.Turns))
		}
	}
	sum := 0
	for _, n := range d.ByTier {
		sum += n
	}
	if sum != d.Requests || d.ByTier[1] == 0 || d.ByTier[2] == 0 || d.ByTier[3] == 0 {
		t.Errorf("tiers %v", d.ByTier)
	}
}

func TestTenantsFollowZipf(t *testing.T) {
	w := newDemo(t, func(s *Spec) { s.Requests = 60_000; s.Tenants = Tenants{Count: 50, ZipfS: 1} })
	count := make([]float64, 50)
	for _, s := range w.Sessions {
		count[s.Tenant]++
	}
	harmonic := 0.0
	for k := 1; k <= 50; k++ {
		harmonic += 1 / float64(k)
	}
	n := float64(len(w.Sessions))
	within(t, "share of the first tenant", count[0]/n, 1/harmonic, 0.06)
	within(t, "share of the fifth tenant", count[4]/n, 0.2/harmonic, 0.15)
}

func TestSystemPromptHasThePlannedTokens(t *testing.T) {
	w := newDemo(t, nil)
	var lengths []int
	seen := map[string]bool{}
	for i := range w.Spec.Tenants.Count {
		prompt := w.SystemPrompt(i)
		lengths = append(lengths, w.SystemPromptTokens(i))
		if got := text.CountTokens(prompt); got != w.SystemPromptTokens(i) {
			t.Errorf("tenant %d: %d tokens, said to be %d", i, got, w.SystemPromptTokens(i))
		}
		if seen[prompt[:40]] {
			t.Errorf("tenant %d starts like another: %q", i, prompt[:40])
		}
		seen[prompt[:40]] = true
	}
	slices.Sort(lengths)
	for i, want := range w.Spec.SystemPrompt.quantiles(w.Spec.Tenants.Count) {
		within(t, "system prompt", float64(lengths[i]), float64(want), 0.03)
	}
}

func TestPopularTenantsHaveNeitherLongNorShortPrompts(t *testing.T) {
	for seed := range uint64(5) {
		w := newDemo(t, func(s *Spec) { s.Seed = seed })
		z := newZipf(w.Spec.Tenants.Count, w.Spec.Tenants.ZipfS)
		mean, sum := 0.0, 0.0
		for i := range w.Spec.Tenants.Count {
			mean += z.weight(i) * float64(w.SystemPromptTokens(i))
			sum += z.weight(i)
		}
		within(t, "mean system prompt of a session", mean/sum, w.Spec.SystemPrompt.MeanTokens, 0.03)
	}
}

func TestCutHasAboutTheTokensAskedFor(t *testing.T) {
	p := newProse(stream(1, 2, 3), 5000)
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.IntRange(1, 4000).Draw(t, "tokens")
		cut := p.cut(stream(rapid.Uint64().Draw(t, "seed"), 0, 0), want)
		if got := text.CountTokens(cut); math.Abs(float64(got-want)) > 8+0.05*float64(want) {
			t.Fatalf("%d tokens, asked for %d", got, want)
		}
		if strings.ContainsAny(cut, "\"\\\n") {
			t.Fatal("the text needs escaping")
		}
	})
}

type chat struct {
	Model     string `json:"model"`
	MaxTokens int    `json:"max_tokens"`
	Stream    bool   `json:"stream"`
	Messages  []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	} `json:"messages"`
}

func TestConversationGrowsByAnswerAndQuestion(t *testing.T) {
	w := newDemo(t, nil)
	for i := range 20 {
		c := w.Start(i)
		var before []byte
		for turn := 0; ; turn++ {
			var body chat
			if err := json.Unmarshal(c.Body(), &body); err != nil {
				t.Fatalf("session %d turn %d: %v", i, turn, err)
			}
			if n := len(body.Messages); n != 2+2*turn || body.Messages[n-1].Role != "user" || body.Messages[0].Role != "system" {
				t.Fatalf("session %d turn %d: %d messages", i, turn, len(body.Messages))
			}
			if body.Messages[0].Content != w.SystemPrompt(w.Sessions[i].Tenant) {
				t.Fatalf("session %d has another system prompt than its tenant", i)
			}
			if body.MaxTokens != c.Turn().AnswerTokens || !body.Stream || body.Model != w.Spec.Model {
				t.Fatalf("session %d turn %d: %d max_tokens", i, turn, body.MaxTokens)
			}
			if turn > 0 && body.Messages[2*turn].Content != "It was \"sent\" on time." {
				t.Fatalf("the answer became %q", body.Messages[2*turn].Content)
			}
			if before != nil && !bytes.HasPrefix(c.Body(), before) {
				t.Fatal("the next turn does not start with the one before")
			}
			before = bytes.Clone(c.Body()[:c.content])
			if !c.Answered([]byte(`It was \"sent\" on time.`)) {
				if turn != len(w.Sessions[i].Turns)-1 {
					t.Fatalf("session %d ended after turn %d of %d", i, turn, len(w.Sessions[i].Turns))
				}
				break
			}
		}
	}
}

func TestSameSeedSameWorkloadOtherSeedAnother(t *testing.T) {
	body := func(seed uint64) string {
		w := newDemo(t, func(s *Spec) { s.Seed = seed; s.Requests = 500 })
		c := w.Start(len(w.Sessions) / 2)
		c.Answered([]byte("Yes."))
		return string(c.Body()) + w.Sessions[3].Start.String()
	}
	first := body(1)
	if again := body(1); first != again {
		t.Error("one seed gave two workloads")
	}
	if first == body(2) {
		t.Error("two seeds gave one workload")
	}
}

func TestFewerRequestsAreTheStartOfMore(t *testing.T) {
	short, long := newDemo(t, func(s *Spec) { s.Requests = 1000 }), newDemo(t, nil)
	for i := range len(short.Sessions) - 1 {
		a, b := short.Sessions[i], long.Sessions[i]
		if a.Start != b.Start || a.Tenant != b.Tenant || len(a.Turns) != len(b.Turns) {
			t.Fatalf("session %d differs", i)
		}
	}
}

func TestDocumentsComeWithTheSecondQuestion(t *testing.T) {
	w := newDemo(t, func(s *Spec) { s.Documents.Share = 0.5; s.Documents.Min = 4000; s.UserMessage.Max = 1000 })
	with := 0
	for _, s := range w.Sessions {
		for i, turn := range s.Turns {
			if turn.UserTokens >= 4000 {
				with++
				if i != 1 {
					t.Fatalf("a document in turn %d", i)
				}
			}
		}
		if s.Turns[0].Think != 0 {
			t.Fatal("a session starts with a pause")
		}
	}
	within(t, "share of sessions with a document", float64(with)/float64(len(w.Sessions)), 0.5, 0.1)
}

func TestCeilingCountsEachTokenFreshOnce(t *testing.T) {
	// One tenant, one session of three turns: all but the first turn's prompt
	// and the later questions could be hit.
	w := newDemo(t, func(s *Spec) {
		s.Requests = 3
		s.Tenants.Count = 1
		s.Documents.Share = 0
	})
	if len(w.Sessions) != 1 {
		t.Fatalf("%d sessions for three requests", len(w.Sessions))
	}
	d := w.Distribution()
	fresh := w.SystemPromptTokens(0) + messageOverhead
	for _, turn := range w.Sessions[0].Turns {
		fresh += turn.UserTokens + messageOverhead
	}
	within(t, "ceiling", d.Ceiling, 1-float64(fresh)/float64(d.PromptTokens), 1e-9)
	if d.FirstTurnTokens >= d.PromptTokens/2 || d.Tenants != 1 || d.TopTenant != 1 {
		t.Errorf("%+v", d)
	}
}

func TestDistributionPrints(t *testing.T) {
	var out bytes.Buffer
	if err := newDemo(t, nil).Distribution().Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10000 requests", "tenants (busiest", "system prompt tokens", "4-16k tokens", "would hit"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestMistakesInAFileAreNamed(t *testing.T) {
	demo := string(demoYAML)
	for _, c := range []struct{ old, new, want string }{
		{"model: llama-3.1-70b", "model: ''", "model"},
		{"requests: 10000", "requests: 0", "requests"},
		{"requests: 10000", "request: 10", "request"},
		{"requests: 10000", "requests: many", "requests"},
		{"requests: 10000", "requests: 10\nrequests: 20", "requests"},
		{"count: 100", "count: 0", "tenants.count"},
		{"min: 3, max: 12", "min: 5, max: 2", "turns"},
		{"mean_tokens: 3500", "mean_tokens: 0", "system_prompt"},
		{"mean_tokens: 3500", "mean_tokens: .nan", "NaN"},
		{"workers: 16", "workers: 0", "fleet.workers"},
		{"step_tokens: 2048", "step_tokens: 64", "StepTokens"},
		{"share: 0.", "share: 7.", "documents.share"},
	} {
		if !strings.Contains(demo, c.old) {
			t.Fatalf("demo.yaml has no %q", c.old)
		}
		_, err := Parse([]byte(strings.Replace(demo, c.old, c.new, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want it to name %s", c.new, err, c.want)
		}
	}
	path := filepath.Join(t.TempDir(), "w.yaml")
	if err := os.WriteFile(path, demoYAML, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Load(path); err != nil || s != Demo() {
		t.Errorf("%v", err)
	}
	if _, err := Load(path + ".absent"); err == nil {
		t.Error("an absent file was loaded")
	}
}

func TestTiers(t *testing.T) {
	for tokens, want := range map[int]int{0: 0, 1023: 0, 1024: 1, 4095: 1, 4096: 2, 16384: 2, 16385: 3} {
		if got := Tier(tokens); got != want {
			t.Errorf("%d tokens: tier %s, want %s", tokens, Tiers[got], Tiers[want])
		}
	}
}

func BenchmarkConversation(b *testing.B) {
	w := newDemo(b, nil)
	answer := text.AppendAnswer(nil, 7, 240)
	size, n := 0, 0
	for i := 0; b.Loop(); i++ {
		c := w.Start(i % len(w.Sessions))
		for more := true; more; more = c.Answered(answer) {
			size += len(c.Body())
			n++
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(n), "ns/request")
	b.ReportMetric(float64(size)/float64(n), "bytes/request")
}

func TestRateIsReachedOnceSessionsOverlap(t *testing.T) {
	w := newDemo(t, nil)
	// With answers of no length the n-th turn comes at the sum of the pauses.
	const from, to = 200 * time.Second, 400 * time.Second
	n := 0
	for _, s := range w.Sessions {
		at := s.Start
		for _, turn := range s.Turns {
			if at += turn.Think; at >= from && at < to {
				n++
			}
		}
	}
	within(t, "requests a second", float64(n)/200, w.Spec.RequestsPerSecond, 0.1)
}

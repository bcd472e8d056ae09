// Package workload makes reproducible multi-turn conversations.
//
// A Spec (a YAML file) says how many tenants, sessions and tokens. New makes
// the tenants' system prompts once and plans all sessions: who, when, how many
// turns, how long each message and answer, how long the pauses. A Conversation
// then plays one session: it starts with the tenant's system prompt and first
// question, and each answer the worker gave is appended before the next
// question, as a chat client does. Nothing but the seed, the file and the
// answers decides what is sent, so every routing policy sees the same requests.
package workload

import (
	_ "embed"
	"fmt"
	"math"
	"os"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/warmpath/warmpath/sim/engine"
)

//go:embed demo.yaml
var demoYAML []byte

// A Spec is a workload file. Tokens are those of the simulated engine (package
// text), times are seconds of the engine's clock.
type Spec struct {
	// Seed of everything drawn.
	Seed uint64 `json:"seed"`
	// Model named in each request.
	Model string `json:"model"`
	// Requests in total; the last session may be cut short to meet it.
	Requests int `json:"requests"`
	// RequestsPerSecond is the mean rate once the first sessions have had time
	// to end; sessions arrive as a Poisson process of this rate divided by the
	// mean number of turns.
	RequestsPerSecond float64 `json:"requests_per_second"`
	Tenants           Tenants `json:"tenants"`
	// SystemPrompt of each tenant, drawn once per tenant.
	SystemPrompt Lengths `json:"system_prompt"`
	// Turns of a session, uniform.
	Turns Range `json:"turns"`
	// FirstMessage opens a session, UserMessage each later turn.
	FirstMessage Lengths `json:"first_message"`
	UserMessage  Lengths `json:"user_message"`
	// Documents are pasted into the second question of some sessions.
	Documents Documents `json:"documents"`
	// Answer of each turn.
	Answer Lengths `json:"answer"`
	// ThinkSeconds between an answer and the next question: log-normal.
	ThinkSeconds Seconds `json:"think_seconds"`
	// Fleet that the workload was tuned for.
	Fleet Fleet `json:"fleet"`
}

// Tenants share sessions by a Zipf law: tenant k has weight k^-ZipfS.
type Tenants struct {
	Count int     `json:"count"`
	ZipfS float64 `json:"zipf_s"`
}

// Lengths is a log-normal number of tokens, by mean and coefficient of
// variation, cut at Min and Max.
type Lengths struct {
	MeanTokens float64 `json:"mean_tokens"`
	CV         float64 `json:"cv"`
	Min        int     `json:"min"`
	Max        int     `json:"max"`
}

// Documents go with a share of all sessions and stay in their conversation.
type Documents struct {
	Share float64 `json:"share"`
	Lengths
}

// Seconds is a log-normal duration.
type Seconds struct {
	Mean float64 `json:"mean"`
	CV   float64 `json:"cv"`
}

// Range is a uniform whole number, both ends included.
type Range struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// Fleet is what serves the workload in the demo.
type Fleet struct {
	Workers int `json:"workers"`
	// CapacityTokens of KV cache of each worker.
	CapacityTokens int `json:"capacity_tokens"`
	// MaxRunning requests in a worker's batch.
	MaxRunning int `json:"max_running"`
	// MaxQueued requests per worker before it refuses.
	MaxQueued int `json:"max_queued"`
	// StepTokens is the token budget of one engine step.
	StepTokens int `json:"step_tokens"`
	// TimeScale is how many engine seconds pass in one real second.
	TimeScale float64 `json:"time_scale"`
}

// EngineParams are the engine's defaults with the fleet's sizes; capacity
// scales the KV cache (1 leaves it).
func (f Fleet) EngineParams(capacity float64) engine.Params {
	p := engine.DefaultParams()
	p.CapacityBlocks = max(1, int(float64(f.CapacityTokens)*capacity)/engine.BlockTokens)
	p.MaxRunning = f.MaxRunning
	p.MaxQueued = f.MaxQueued
	p.StepTokens = f.StepTokens
	return p
}

// Demo returns the workload of `warmpath demo`.
func Demo() Spec {
	s, err := Parse(demoYAML)
	if err != nil {
		panic(fmt.Sprintf("the embedded demo.yaml: %v", err)) // a test reads it
	}
	return s
}

// Load reads a workload file.
func Load(path string) (Spec, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Spec{}, fmt.Errorf("workload: %w", err)
	}
	s, err := Parse(data)
	if err != nil {
		return Spec{}, fmt.Errorf("workload %s: %w", path, err)
	}
	return s, nil
}

// Parse reads a workload. Unknown and repeated keys are errors.
func Parse(data []byte) (Spec, error) {
	var s Spec
	if err := yaml.UnmarshalStrict(data, &s); err != nil {
		return Spec{}, err
	}
	return s, s.Validate()
}

// Validate tells the first setting that cannot work, by its path in the file.
func (s Spec) Validate() error {
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	for _, c := range []struct {
		bad          bool
		path, remedy string
	}{
		{s.Model == "", "model", "name the model that the pool serves"},
		{s.Requests < 1, "requests", "at least 1"},
		{!(s.RequestsPerSecond > 0) || !finite(s.RequestsPerSecond), "requests_per_second", "above 0"},
		{s.Tenants.Count < 1, "tenants.count", "at least 1"},
		{!(s.Tenants.ZipfS >= 0) || !finite(s.Tenants.ZipfS), "tenants.zipf_s", "0 (all alike) or more"},
		{s.Turns.Min < 1 || s.Turns.Max < s.Turns.Min, "turns", "1 <= min <= max"},
		{!(s.ThinkSeconds.Mean >= 0) || !(s.ThinkSeconds.CV >= 0) || !finite(s.ThinkSeconds.Mean), "think_seconds", "mean and cv not negative"},
		{!(s.Documents.Share >= 0 && s.Documents.Share <= 1), "documents.share", "0 to 1"},
		{s.Fleet.Workers < 1, "fleet.workers", "at least 1"},
		{!(s.Fleet.TimeScale > 0) || !finite(s.Fleet.TimeScale), "fleet.time_scale", "above 0; 1 is real time"},
	} {
		if c.bad {
			return fmt.Errorf("%s: want %s", c.path, c.remedy)
		}
	}
	for _, l := range []struct {
		path string
		Lengths
	}{
		{"system_prompt", s.SystemPrompt},
		{"first_message", s.FirstMessage},
		{"user_message", s.UserMessage},
		{"documents", s.Documents.Lengths},
		{"answer", s.Answer},
	} {
		if l.path == "documents" && s.Documents.Share == 0 {
			continue
		}
		if !(l.MeanTokens >= 1) || !finite(l.MeanTokens) || !(l.CV >= 0) || !finite(l.CV) || l.Min < 1 || l.Max < l.Min || l.Max > 1<<20 {
			return fmt.Errorf("%s: want mean_tokens >= 1, cv >= 0, 1 <= min <= max <= 1,048,576", l.path)
		}
	}
	if err := s.Fleet.EngineParams(1).Validate(); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	return nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

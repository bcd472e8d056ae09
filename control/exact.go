package control

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/ingest"
	"github.com/warmpath/warmpath/control/parity"
	"github.com/warmpath/warmpath/control/vocabulary"
	"github.com/warmpath/warmpath/shared/policy"
)

// exactPool is a pool's way from text to tokens. The service's policyMu guards
// it.
//
// What the policy names is first only loaded: gateways fetch the vocabulary, the
// workers are asked for their tokens. Once every VM has it and no worker has
// shown others, or the grace is over, one version of the table makes it active
// for all VMs together. What was in force before stays so until then; it ends at
// once when a worker shows other tokens.
type exactPool struct {
	wanted  *tokenizer // of the policy
	since   time.Time  // when it was named
	serving *tokenizer // in force; nil: approximate mode
	reason  string     // why wanted is not in force, for people
	alert   string     // what was told of a difference
}

// adoptTokenizers takes the pools' tokenizers over from a document that comes
// into force. Requires policyMu.
func (s *Service) adoptTokenizers(d *document, now time.Time) {
	for name := range s.exact {
		if d.tokenizers[name] == nil {
			delete(s.exact, name)
		}
	}
	named := map[policy.Hash]int{}
	for name, t := range d.tokenizers {
		p := s.exact[name]
		if p == nil {
			p = &exactPool{}
			s.exact[name] = p
		}
		if !t.same(p.wanted) {
			p.since, p.reason, p.alert = now, "", ""
		}
		p.wanted = t
		if p.serving == nil && t.parity != parityRequire && slices.Contains(s.wasExact, markOf(name, t)) {
			// Gateways have it in force, and this service has only restarted.
			p.serving = t
		}
		if t.same(p.serving) {
			p.serving = t
		}
		named[t.vocabulary.Hash] = t.vocabulary.Bytes
	}
	s.wasExact = nil
	total := 0
	for _, bytes := range named {
		total += bytes
	}
	// What is on its way out stays only where there is room for both.
	for _, p := range s.exact {
		if p.serving == nil {
			continue
		}
		v := p.serving.vocabulary
		if _, ok := named[v.Hash]; ok {
			continue
		}
		if total+v.Bytes > policy.MaxVocabularyBytes {
			p.serving = nil
			continue
		}
		named[v.Hash] = v.Bytes
		total += v.Bytes
	}
}

// stepExact moves the pools on as far as gateways and workers are. Requires
// policyMu. It reports whether anything gateways are told is another.
func (s *Service) stepExact(d *document, now time.Time) (changed bool) {
	gateways := s.gateways.List(now)
	for i := range d.parsed.Pools {
		name := d.parsed.Pools[i].Name
		p := s.exact[name]
		if p == nil {
			continue
		}
		verdict := s.verdict(name, p.wanted)
		if verdict.Outcome == parity.Differs {
			if p.alert != verdict.Detail {
				p.alert = verdict.Detail
				until := "the pool is in approximate mode"
				if p.serving != nil && !p.wanted.same(p.serving) {
					until = "the vocabulary before this one stays in force"
				}
				s.log.Error("a worker has other tokens, "+until, "pool", name, "worker", verdict.Worker, "difference", verdict.Detail,
					"remedy", "check tokenizer.file and tokenizer.template of the pool; warmpath tokenizer verify tells more")
			}
			p.reason = "worker " + verdict.Worker + " has other tokens: " + verdict.Detail
			if p.wanted.same(p.serving) {
				p.serving, p.since, changed = nil, now, true
			}
			continue
		}
		p.alert = ""
		if p.wanted.same(p.serving) {
			p.reason = ""
			continue
		}
		if p.reason = waitingFor(p, verdict, gateways, now); p.reason == "" {
			p.serving, changed = p.wanted, true
			kick(s.saveSoon)
			s.log.Info("fingerprints are over tokens", "pool", name, "vocabulary", p.wanted.vocabulary.Hash.String(), "parity", verdict.Outcome.String(), "after", now.Sub(p.since).Round(time.Millisecond))
		}
	}
	return changed
}

// waitingFor says what keeps a pool's tokenizer from coming into force, "" for
// nothing.
func waitingFor(p *exactPool, verdict verdict, gateways []ingest.Gateway, now time.Time) string {
	t := p.wanted
	graceOver := now.Sub(p.since) >= t.grace
	if t.parity == parityRequire && verdict.Outcome != parity.Same && verdict.Outcome != parity.SameTokens {
		return "parity is required, and is " + verdict.Outcome.String() + ": " + verdict.Detail
	}
	if t.parity != parityOff && verdict.Outcome == parity.Pending && !graceOver {
		return "workers are asked for their tokens: " + verdict.Detail
	}
	if graceOver {
		return ""
	}
	live, has := readyGateways(t, gateways, now)
	switch {
	case live == 0:
		return "no gateway has reported yet"
	case has < live:
		return fmt.Sprintf("%d of %d gateways have the vocabulary loaded", has, live)
	}
	return ""
}

// readyGateways counts the live gateways, and those whose VMs all have the
// vocabulary.
func readyGateways(t *tokenizer, gateways []ingest.Gateway, now time.Time) (live, has int) {
	for i := range gateways {
		if now.Sub(gateways[i].LastSeen) > ingest.LiveFor {
			continue
		}
		live++
		if gateways[i].Has(t.vocabulary.Hash) {
			has++
		}
	}
	return live, has
}

// exactSection is the EXACT section; empty without tokenizers, which is what a
// fleet has known before there were any. Requires policyMu.
func (s *Service) exactSection(d *document) []byte {
	type entry struct {
		Pool     string          `json:"pool"`
		Vocab    string          `json:"vocab"`
		Bytes    int             `json:"bytes"`
		Template json.RawMessage `json:"template"`
		Engine   string          `json:"engine"`
		Active   bool            `json:"active"`
	}
	var entries []entry
	var keep []*vocabulary.Vocabulary
	add := func(pool string, t *tokenizer, active bool) {
		v := t.vocabulary
		entries = append(entries, entry{pool, v.Hash.String(), v.Bytes, t.templateJSON(), t.engine, active})
		keep = append(keep, v)
	}
	for i := range d.parsed.Pools {
		name := d.parsed.Pools[i].Name
		p := s.exact[name]
		if p == nil {
			continue
		}
		if p.serving != nil {
			add(name, p.serving, true)
		}
		if !p.wanted.same(p.serving) {
			add(name, p.wanted, false)
		}
	}
	s.vocabularies.Keep(keep)
	if entries == nil {
		return nil
	}
	text, err := json.Marshal(entries)
	if err != nil {
		// Strings, numbers and a template that came out of a JSON encoder.
		panic(fmt.Sprintf("control: exact section can't be written: %v", err))
	}
	return text
}

// templateJSON is the template as the EXACT section has it.
func (t *tokenizer) templateJSON() json.RawMessage {
	if t.declared {
		return json.RawMessage(t.template)
	}
	text, _ := json.Marshal(t.template) // a string can always be written
	return text
}

// housekeepExact is asked once a second, and when a worker has been probed.
func (s *Service) housekeepExact(now time.Time) {
	s.policyMu.Lock()
	defer s.policyMu.Unlock()
	d := s.policy.Load()
	if s.stepExact(d, now) {
		s.table.SetPolicy(s.policyText(d), s.exactSection(d), d.off)
	}
}

// tokenizerStatus is what the status says about the pools' tokenizers.
func (s *Service) tokenizerStatus(now time.Time) []api.Tokenizer {
	s.policyMu.Lock()
	defer s.policyMu.Unlock()
	gateways := s.gateways.List(now)
	out := []api.Tokenizer{}
	d := s.policy.Load()
	for i := range d.parsed.Pools {
		name := d.parsed.Pools[i].Name
		p := s.exact[name]
		if p == nil {
			continue
		}
		live, has := readyGateways(p.wanted, gateways, now)
		t := api.Tokenizer{
			Pool: name, Vocabulary: p.wanted.vocabulary.Hash.String(), Bytes: p.wanted.vocabulary.Bytes,
			Template: p.wanted.template, Engine: p.wanted.engine, Mode: "approximate", Reason: p.reason,
			FileProblem: s.badFiles[p.wanted.vocabulary.Path],
			Gateways:    live, ReadyGateways: has, Workers: s.workerParity(name, p.wanted),
		}
		if p.serving != nil {
			t.Mode, t.Serving = "exact", p.serving.vocabulary.Hash.String()
		}
		out = append(out, t)
	}
	return out
}

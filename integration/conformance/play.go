package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// proxy is what a scenario is played on: hostsim with a little connection
// manager around it, or a real Envoy.
type proxy interface {
	// start brings the listener up with its plugins; an error is what a module
	// that refuses its configuration comes to.
	start(ctx context.Context, s *Setup) error
	// reconfigure puts changed plugins in force; which says the one.
	reconfigure(ctx context.Context, s *Setup, which int) error
	// act lets an actor do something.
	act(ctx context.Context, actor string, a Action) error
	// wait lets time pass.
	wait(ctx context.Context, d time.Duration) error
	// metrics lists the modules' metrics whose names begin with prefix, as
	// "name value", sorted.
	metrics(ctx context.Context, prefix string) ([]string, error)
	// settle returns when nothing more follows. done says whether the events so
	// far are what is waited for; a proxy in real time needs not hurry before.
	settle(ctx context.Context, j *journal, done func([]event) bool) error
	// stop ends the scenario and forgets it.
	stop()
}

// errRefused: the module does not accept its configuration.
var errRefused = errors.New("the module refuses its configuration")

// play puts p through the scenario and returns it with what p did as the
// transcript.
func (s *Scenario) play(ctx context.Context, p proxy, j *journal) (*Scenario, error) {
	setup := &Setup{}
	got := &Scenario{Name: s.Name, Claim: s.Claim}
	defer p.stop()
	for _, st := range s.Steps {
		where := fmt.Sprintf("%s.txt, line %d: %s", s.Name, st.Line, st.Command)
		words, err := splitWords(st.Command)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		said, err := s.step(ctx, p, setup, words, st.Input)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		err = p.settle(ctx, j, func(events []event) bool {
			return slices.Equal(append(transcript(events, setup), said...), st.Want)
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		now := st
		now.Want = append(transcript(j.take(), setup), said...)
		got.Steps = append(got.Steps, now)
	}
	return got, nil
}

// step does one step; said are lines that are known at once.
func (s *Scenario) step(ctx context.Context, p proxy, setup *Setup, words, input []string) (said []string, err error) {
	argument := ""
	if len(words) > 1 {
		argument = words[1]
	}
	// Refusals are part of the story; who refuses words it in its own way.
	refused := func(err error) ([]string, error) {
		if errors.Is(err, errRefused) {
			return []string{"refused"}, nil
		}
		return nil, err
	}
	switch words[0] {
	case "listener":
		return nil, parseListener(setup, input)
	case "plugin":
		plugin, err := parsePlugin(argument, s.Name, input)
		setup.Plugins = append(setup.Plugins, plugin)
		return nil, err
	case "start":
		return refused(p.start(ctx, setup))
	case "reconfigure":
		which := slices.IndexFunc(setup.Plugins, func(p *PluginSetup) bool { return p.Name == argument })
		if which < 0 {
			return nil, fmt.Errorf("no plugin %q", argument)
		}
		old := setup.Plugins[which]
		if setup.Plugins[which], err = parsePlugin(argument, s.Name, input); err != nil {
			return nil, err
		}
		err = p.reconfigure(ctx, setup, which)
		if err != nil {
			setup.Plugins[which] = old
		}
		return refused(err)
	case "wait":
		d, err := time.ParseDuration(argument)
		if err != nil {
			return nil, err
		}
		return nil, p.wait(ctx, d)
	case "metrics":
		return p.metrics(ctx, argument)
	case client, upstream, control:
		actor, action, err := parseAction(words, input)
		if err != nil {
			return nil, err
		}
		return nil, p.act(ctx, actor, action)
	}
	return nil, fmt.Errorf("no such command; one of listener, plugin, start, client, upstream, control, wait, metrics, reconfigure")
}

// diff shows where two transcripts part, step by step: "-" is expected, "+" is
// what was seen. Empty when they are the same.
func diff(want, got *Scenario) string {
	var b strings.Builder
	for i, w := range want.Steps {
		if i >= len(got.Steps) {
			break
		}
		g := got.Steps[i]
		if slices.Equal(w.Want, g.Want) {
			continue
		}
		fmt.Fprintf(&b, "%s.txt, line %d: > %s\n", want.Name, w.Line, w.Command)
		for _, line := range diffLines(w.Want, g.Want) {
			b.WriteString("  " + line + "\n")
		}
	}
	return b.String()
}

// diffLines is a longest common subsequence of a and b with what is in only one
// of them marked.
func diffLines(a, b []string) []string {
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out []string
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, "  "+a[i])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			out = append(out, "- "+a[i])
			i++
		default:
			out = append(out, "+ "+b[j])
			j++
		}
	}
	return out
}

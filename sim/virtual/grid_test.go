package virtual

import (
	"slices"
	"testing"

	"github.com/warmpath/warmpath/shared/policy"
)

func TestTheReferenceUsesTheBestPointOfTheCommittedGrid(t *testing.T) {
	g, err := CommittedGrid()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(g.Grid, Grid()) || g.Load != GridLoad {
		t.Errorf("the committed choice is from another grid: make it anew with warmpath sim reference")
	}
	for _, s := range Workloads() {
		c, ok := g.Workloads[s.Name]
		if !ok || len(c.TTFT) != len(g.Grid) {
			t.Errorf("%s: no choice is committed", s.Name)
			continue
		}
		if best := g.Grid[slices.Index(c.TTFT, slices.Min(c.TTFT))]; best != c.Best {
			t.Errorf("%s: %+v is chosen, the least mean is at %+v", s.Name, c.Best, best)
		}
		p := policy.Default(policy.Cost)
		g.apply(&s, &p)
		if p.MissWeight != c.Best.MissWeight || p.DecodeWeight != c.Best.DecodeWeight {
			t.Errorf("%s is played with %+v", s.Name, p)
		}
	}
	deaths, err := FindScenario("deaths")
	if err != nil {
		t.Fatal(err)
	}
	p := policy.Default(policy.Cost)
	if g.apply(&deaths, &p); p.MissWeight != g.Workloads["seed-16"].Best.MissWeight {
		t.Errorf("a mishap of seed-16 is played with %+v", p)
	}
}

func TestAGridIsPlayedPointByPoint(t *testing.T) {
	s := small(func(s *Scenario) { s.Requests, s.Saturation = 300, 20 })
	c, err := s.ChooseGrid(t.Context(), []uint64{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.TTFT) != len(Grid()) || slices.Min(c.TTFT) <= 0 || slices.Min(c.TTFT) == slices.Max(c.TTFT) {
		t.Errorf("%+v", c)
	}
}

package virtual

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"

	"github.com/warmpath/warmpath/shared/policy"
)

// GridPoint is a choice of the weights of the rule cost that workloads disagree on most.
type GridPoint struct {
	MissWeight   float64 `json:"miss_weight"`
	DecodeWeight float64 `json:"decode_weight"`
}

// Grid is what the reference may choose from: nothing to twice the default of miss_weight, a third to
// three times that of decode_weight.
func Grid() (points []GridPoint) {
	for _, miss := range []float64{0, 1, 3, 6} {
		for _, decode := range []float64{0.05, 0.1, 0.2, 0.4} {
			points = append(points, GridPoint{miss, decode})
		}
	}
	return points
}

// GridLoad is the share of saturation at which a workload's point is chosen.
const GridLoad = 0.85

// ReferenceGrid is the reference's choice, workload by workload.
type ReferenceGrid struct {
	Load  float64     `json:"load"`
	Seeds []uint64    `json:"seeds"`
	Grid  []GridPoint `json:"grid"`
	// Workloads by name of the scenario.
	Workloads map[string]GridChoice `json:"workloads"`
}

// GridChoice is the point of least mean TTFT of a workload.
type GridChoice struct {
	Best GridPoint `json:"best"`
	// TTFT is the mean in ms at every point of the grid, over the seeds.
	TTFT []float64 `json:"ttft_ms"`
}

// committed holds what "warmpath sim reference --seeds 1-3 --traces DIR" printed.
//
//go:embed reference.json
var committed []byte

// CommittedGrid is the choice that the policy reference uses.
func CommittedGrid() (*ReferenceGrid, error) {
	g := new(ReferenceGrid)
	if err := json.Unmarshal(committed, g); err != nil {
		return nil, fmt.Errorf("read the reference's grid (sim/virtual/reference.json, made by warmpath sim reference): %w", err)
	}
	return g, nil
}

// apply sets the weights chosen for a scenario. What goes wrong in a mishap goes wrong in
// seed-16, and a workload that the grid doesn't name is played with the defaults.
func (g *ReferenceGrid) apply(s *Scenario, p *policy.Policy) {
	name := s.Name
	if s.mishap() {
		name = "seed-16"
	}
	if c, ok := g.Workloads[name]; ok {
		p.MissWeight, p.DecodeWeight = c.Best.MissWeight, c.Best.DecodeWeight
	}
}

// ChooseGrid plays the scenario with the reference at every point of the grid.
func (s Scenario) ChooseGrid(ctx context.Context, seeds []uint64, progress func(done, all int)) (GridChoice, error) {
	var choice GridChoice
	least, grid := math.Inf(1), Grid()
	for i, point := range grid {
		tune := map[string]func(*policy.Policy){"reference": func(p *policy.Policy) {
			p.MissWeight, p.DecodeWeight = point.MissWeight, point.DecodeWeight
		}}
		c, err := s.Compare(ctx, []string{"reference"}, seeds, Play{Rate: GridLoad * s.Saturation}, tune, nil)
		if err != nil {
			return choice, err
		}
		mean := c.Policies["reference"].TTFT.Mean
		choice.TTFT = append(choice.TTFT, math.Round(mean*100)/100)
		if mean < least {
			least, choice.Best = mean, point
		}
		if progress != nil {
			progress(i+1, len(grid))
		}
	}
	return choice, nil
}

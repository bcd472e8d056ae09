package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/warmpath/warmpath/sim/engine"
	"github.com/warmpath/warmpath/sim/virtual"
)

const engineUsage = "play it on this engine instead of its own, cache and SLO included (warmpath sim list --engines)"

// What the engines are shown with.
const shownPrompt, shownBatch, shownContext = 4000, 32, 1000

func findEngine(name string) (engine.Preset, error) {
	p, err := engine.FindPreset(name)
	if err != nil {
		return p, fmt.Errorf("--engine %s: there is none of that name; warmpath sim list --engines has them", name)
	}
	return p, nil
}

func printEngines(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ENGINE\tMODEL\tGPUS\tWEIGHTS\tKV TOKENS\tCOLD 4,000\tSTEP OF 32")
	for _, p := range engine.Presets() {
		params := p.Params()
		fmt.Fprintf(w, "%s\t%s\t%d x %s\t%.4g GB %s\t%d\t%.0f ms\t%.1f ms\n", p.Name, p.Model.Name, p.GPUs, p.GPU.Name, p.Weights, p.Format,
			params.CapacityTokens(), asMillis(params.PrefillTime(shownPrompt)), asMillis(params.DecodeTime(shownBatch, shownContext)))
	}
	fmt.Fprintln(w, "\nCold 4,000: a prompt of 4,000 tokens on an idle engine. Step of 32: 32 requests decode, with 1,000 tokens each.")
	fmt.Fprintln(w, "Nothing is measured: see docs/simulator.md. Figures are from:")
	if err := w.Flush(); err != nil {
		return err
	}
	told := map[string]bool{}
	for _, p := range engine.Presets() {
		for _, figures := range []struct{ of, source string }{{p.Model.Name, p.Source}, {p.GPU.Name, p.GPU.Source}} {
			if !told[figures.of] {
				told[figures.of] = true
				fmt.Fprintf(out, "  %s: %s\n", figures.of, figures.source)
			}
		}
	}
	return nil
}

func asMillis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// simList is what sim list prints as JSON.
func simList(engines bool) any {
	if engines {
		type listed struct {
			Name         string  `json:"name"`
			Model        string  `json:"model"`
			GPU          string  `json:"gpu"`
			GPUs         int     `json:"gpus"`
			WeightsGB    float64 `json:"weights_gb"`
			Format       string  `json:"format"`
			Source       string  `json:"source"`
			GPUSource    string  `json:"gpu_source"`
			KVTokens     int     `json:"kv_tokens"`
			TokenBytes   float64 `json:"kv_token_bytes"`
			ColdMillis   float64 `json:"cold_4000_ms"`
			DecodeMillis float64 `json:"decode_step_32_ms"`
		}
		var all []listed
		for _, p := range engine.Presets() {
			params := p.Params()
			all = append(all, listed{
				p.Name, p.Model.Name, p.GPU.Name, p.GPUs, p.Weights, p.Format, p.Source, p.GPU.Source, params.CapacityTokens(), p.TokenBytes(),
				asMillis(params.PrefillTime(shownPrompt)), asMillis(params.DecodeTime(shownBatch, shownContext)),
			})
		}
		return map[string]any{"engines": all}
	}
	type scenario struct {
		Name       string  `json:"name"`
		Nodes      int     `json:"nodes"`
		Rate       float64 `json:"requests_per_second"`
		Saturation float64 `json:"saturation_per_second,omitempty"`
		About      string  `json:"about"`
	}
	type named struct {
		Name  string `json:"name"`
		About string `json:"about"`
	}
	var scenarios []scenario
	for _, s := range virtual.Scenarios() {
		scenarios = append(scenarios, scenario{s.Name, s.Workers, s.Rate, s.Saturation, s.About})
	}
	var policies []named
	for _, p := range append(virtual.Policies(), virtual.Peers()...) {
		policies = append(policies, named{p.Name, p.About})
	}
	return map[string]any{"scenarios": scenarios, "policies": policies}
}

// Command panics is a module whose score panics at long prompts.
package main

import (
	"github.com/warmpath/warmpath/filter/plugin"
	"github.com/warmpath/warmpath/shared/route"
)

func init() {
	plugin.Start(plugin.WithScore(func(r *route.Request, w *route.Worker, _ *route.Facts) float64 {
		if r.PromptTokens > 1000 {
			panic("a prompt of this length")
		}
		return float64(w.Ref)
	}))
}

func main() {}

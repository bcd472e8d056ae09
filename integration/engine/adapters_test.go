//go:build engine

package engine

import (
	"fmt"
	"os"
	"time"

	"github.com/warmpath/warmpath/control/discovery/adapters"
)

// generationOf is what the path of an adapter makes of its name.
func generationOf(path string) uint64 {
	a := adapters.Adapter{Name: AdapterName, Root: path}
	return a.Generation()
}

// aliasShares: engines keep nothing apart for another name of the model.
func aliasShares(r *rig) {
	t := newTalk(seed(r, 202), 250)
	r.mustAsk(request{messages: t.messages})
	r.settled()
	if a := r.mustAsk(request{messages: t.messages, model: AliasName}); a.predicted == 0 || a.cached < a.predicted {
		r.t.Errorf("under its other name %d of %d tokens were predicted to be cached, the engine says %d", a.predicted, a.prompt, a.cached)
	}
	r.agree(reported)
}

// otherWeights: the adapter's name stands for the files of another folder, and
// then for those of before again.
func otherWeights(r *rig) {
	q := request{messages: newTalk(seed(r, 203), 250).messages, model: AdapterName}
	hits := func(when string, wanted bool) {
		r.t.Helper()
		a := r.mustAsk(q)
		if a.predicted > 0 != wanted || a.cached > 0 != wanted || a.cached < a.predicted {
			r.t.Errorf("%s: %d of %d tokens were predicted to be cached, the engine says %d", when, a.predicted, a.prompt, a.cached)
		}
		r.settled()
	}
	hits("at first", false)
	hits("the second time", true)
	old := r.workers[0].Model.Adapter
	other := r.t.TempDir()
	if err := os.CopyFS(other, os.DirFS(old)); err != nil {
		r.t.Fatal(err)
	}
	r.load(other)
	hits("after other weights were loaded", false)
	hits("the second time after that", true)
	r.load(old)
	hits("when the old weights are back", true)
}

// load puts the files of a folder behind the adapter's name at both engines, and
// waits until the control service has seen it.
func (r *rig) load(path string) {
	r.t.Helper()
	for _, w := range r.workers {
		if _, err := w.Post(r.t.Context(), "/v1/load_lora_adapter", map[string]any{"lora_name": AdapterName, "lora_path": path, "load_inplace": true}); err != nil {
			r.t.Fatal(err)
		}
	}
	r.eventually(10*time.Second, "the control service sees the path", func() error {
		if got, want := r.control.Status().Adapters[pool][AdapterName], generationOf(path); got != want {
			return fmt.Errorf("generation %d, want %d", got, want)
		}
		return nil
	})
	r.settled()
}

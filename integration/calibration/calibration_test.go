// Package calibration holds the engine of the simulator to what a real one did.
package calibration

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/control/kvevents"
	"github.com/warmpath/warmpath/sim/engine"
)

// recording is what vLLM 0.32 published on a CPU while it served prompts, one after the other, with 140
// blocks of 32 tokens, one of them its own.
const recording = "../../control/kvevents/testdata/evict/*_pub.bin"

// batches decodes the recording's messages.
func batches(t *testing.T) (all []kvevents.Batch) {
	t.Helper()
	names, err := filepath.Glob(recording)
	if err != nil || len(names) < 10 {
		t.Fatalf("%d recorded messages: %v", len(names), err)
	}
	slices.Sort(names)
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var payload []byte
		for len(data) > 0 { // frames: the last one is the payload
			n := 4 + int(binary.BigEndian.Uint32(data))
			payload, data = data[4:n], data[n:]
		}
		all = append(all, kvevents.Batch{})
		if err := kvevents.Decode(payload, &all[len(all)-1]); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return all
}

// told is what an engine says of its cache, in order.
func told(kind string, h uint64) string { return fmt.Sprintf("%s %x", kind, h) }

// The model keeps blocks of 16 tokens and the recorded engine blocks of 32, so a recorded block is
// one of the model's and every length half of what it was.
func TestTheModelStoresAndEvictsAsVLLMDid(t *testing.T) {
	p := engine.DefaultParams()
	p.CapacityBlocks = 139
	e, err := engine.New(p)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	e.Watch(func(h engine.BlockHash, there bool) {
		kind := "removed"
		if there {
			kind = "stored"
		}
		said = append(said, told(kind, uint64(h)))
	})
	now, removed := time.Duration(0), 0
	serve := func(hashes []uint64) {
		blocks := make([]engine.BlockHash, len(hashes))
		for i, h := range hashes {
			blocks[i] = engine.BlockHash(h)
		}
		// Half a block more than what was stored, and one token that is decoded.
		prompt := len(blocks)*engine.BlockTokens + engine.BlockTokens/2
		if err := e.Submit(now, engine.Request{ID: uint64(now) + 1, PromptTokens: prompt, OutputTokens: 1, Blocks: blocks}); err != nil {
			t.Fatal(err)
		}
		now += time.Minute
		if events := e.Advance(now); len(events) != 1 || events[0].Kind != engine.Finished {
			t.Fatalf("%+v", events)
		}
	}
	for i, b := range batches(t) {
		said = said[:0]
		var want []string
		for _, x := range b.Events {
			switch x.Kind {
			case kvevents.Cleared:
				e.ClearCache(now)
				said = said[:0] // one event for all
			case kvevents.Removed:
				for _, h := range x.Hashes {
					want = append(want, told("removed", h))
					removed++
				}
			case kvevents.Stored:
				for _, h := range x.Hashes {
					want = append(want, told("stored", h))
				}
				serve(x.Hashes)
				if i == 0 {
					serve(x.Hashes) // the recorded client asked its first prompt twice
				}
			}
		}
		if !slices.Equal(said, want) {
			t.Errorf("message %d: the model said\n%v\nvLLM said\n%v", i, said, want)
		}
	}
	if removed < 50 {
		t.Errorf("only %d blocks were evicted in the recording", removed)
	}
}

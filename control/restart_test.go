package control

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/discovery/adapters"
	"github.com/warmpath/warmpath/shared/table"
)

// warm makes the gateway know a few prefixes.
func warm(b *bench) *gateway {
	g := b.gateway("g")
	g.catchUp()
	for i, address := range []string{alpha, beta, alpha} {
		id, record := g.dispatch(g.refOf(address), prompt("system", string(rune('a'+i))))
		g.send(nil, record, done(id, g.refOf(address), g.refOf(address), nil))
	}
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	g.catchUp()
	return g
}

func TestARestartWithAStateFileFetchesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	bubble(t, func(t *testing.T) {
		e := newEngines(alpha, beta)
		cfg := Config{Workers: specs(alpha, beta), StateFile: file}
		first := start(t, e, cfg)
		<-first.s.Ready()
		g := warm(first)
		entries, roster := cloned(g.entries), g.roster
		if len(entries) == 0 {
			t.Fatal("nothing to keep")
		}
		first.stop()

		second := start(t, e, cfg)
		<-second.s.Ready()
		g.b = second
		g.catchUp()
		if g.resynced != 2 || g.kept != 0 || g.fetched != 0 {
			t.Errorf("%d resyncs, %d kept, %d ranges fetched", g.resynced, g.kept, g.fetched)
		}
		if diff := cmp.Diff(entries, g.entries); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(roster, g.roster); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAWorkerThatRestartedMeanwhileHoldsNothing(t *testing.T) {
	for name, file := range map[string]string{"state file": filepath.Join(t.TempDir(), "state"), "none": ""} {
		bubble(t, func(t *testing.T) {
			e := newEngines(alpha, beta)
			cfg := Config{Workers: specs(alpha, beta), StateFile: file}
			first := start(t, e, cfg)
			<-first.s.Ready()
			g := warm(first)
			first.stop()
			e.set(alpha, 777_777)
			second := start(t, e, cfg)
			<-second.s.Ready()
			g.b = second
			g.catchUp()
			for f, entry := range g.entries {
				for _, ref := range entry.Refs {
					if w, ok := g.roster[ref]; ok && string(w.Address) == alpha {
						t.Errorf("%s: %x names the new process at %s", name, f, alpha)
					}
				}
			}
		})
	}
}

func TestARestartWithoutStateLetsGatewaysKeepWhatTheyHave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEngines(alpha, beta)
		cfg := Config{Workers: specs(alpha, beta)}
		first := start(t, e, cfg)
		<-first.s.Ready()
		g := warm(first)
		before, roster := len(g.entries), g.roster
		first.stop()
		second := start(t, e, cfg)
		<-second.s.Ready()
		if !second.s.Status().Learning {
			t.Error("not learning")
		}
		g.b = second
		g.catchUp()
		if g.kept != 1 || len(g.entries) != before {
			t.Errorf("kept %d times, %d entries of %d", g.kept, len(g.entries), before)
		}
		if diff := cmp.Diff(roster, g.roster); diff != "" {
			t.Errorf("refs changed: %s", diff)
		}
		// What is learned anew arrives beside what was kept.
		_, record := g.dispatch(g.refOf(beta), prompt("another"))
		g.send(nil, record)
		time.Sleep(100 * time.Millisecond)
		g.catchUp()
		if len(g.entries) <= before || g.resynced != 2 {
			t.Errorf("%d entries, %d resyncs", len(g.entries), g.resynced)
		}
		// After the healing time only what is true is left.
		time.Sleep(10 * time.Minute)
		g.catchUp()
		if want := second.s.Status().Table.Entries; len(g.entries) != want || second.s.Status().Learning {
			t.Errorf("%d entries, %d are published", len(g.entries), want)
		}
	})
}

func TestSwitchesThatPeopleThrewHold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	bubble(t, func(t *testing.T) {
		cfg := Config{Workers: specs(alpha, beta), StateFile: file}
		first := start(t, newEngines(alpha, beta), cfg)
		<-first.s.Ready()
		first.do("POST", "/v1/mode", []byte(`{"off":true}`), "application/json")
		first.do("POST", "/v1/workers/drain", []byte(`{"address":"`+beta+`"}`), "application/json")
		if err := first.s.SetPolicy([]byte("pools: [{name: default, models: ['*']}]")); err != nil {
			t.Fatal(err)
		}
		if !first.s.Status().Off {
			t.Error("another policy switched the fleet on")
		}
		time.Sleep(time.Second) // no orderly end: what is on disk now counts
		synctest.Wait()
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		first.stop()
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		second := start(t, newEngines(alpha, beta), cfg)
		<-second.s.Ready()
		if w := second.worker(beta); !second.s.Status().Off || w.State != "draining" {
			t.Errorf("off %v, %+v", second.s.Status().Off, w)
		}
		second.do("POST", "/v1/mode", []byte(`{"off":false}`), "application/json")
		if second.s.Status().Off {
			t.Error("can't be lifted")
		}
	})
}

func TestADamagedStateFileIsIgnored(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	var good []byte
	e := newEngines(alpha, beta)
	bubble(t, func(t *testing.T) {
		b := start(t, e, Config{Workers: specs(alpha, beta), StateFile: file})
		<-b.s.Ready()
		warm(b)
		time.Sleep(31 * time.Second) // it is written while running, too
		var err error
		if good, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
		b.stop()
	})
	flip := func(at int) []byte {
		b := bytes.Clone(good)
		b[at] ^= 1
		return b
	}
	for name, data := range map[string][]byte{
		"empty": nil, "short": good[:30], "cut": good[:len(good)-9], "magic": flip(0), "version": flip(4), "body": flip(len(good) / 2), "sum": flip(len(good) - 1),
		"another file": []byte("workers:\n- address: 10.0.0.1:8000 # somebody mixed the two up\n"),
	} {
		bubble(t, func(t *testing.T) {
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			b := start(t, e, Config{Workers: specs(alpha, beta), StateFile: file})
			<-b.s.Ready()
			if st := b.s.Status(); st.Table.Entries != 0 || !st.Learning {
				t.Errorf("%s: %+v", name, st.Table)
			}
		})
	}
	left, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(left) != 2 { // and its lock
		t.Errorf("left behind: %v %v", left, err)
	}
}

func FuzzDecodeState(f *testing.F) {
	good := appendState(nil, &state{saved: time.Unix(1, 0), serving: map[string]adapters.Served{"default": {Base: []string{"m"}, Adapters: []adapters.Adapter{{Name: "sql", Root: "/v1"}}}}, exact: []exactMark{{pool: "default", rendering: 7}}, refs: []discovery.Ref{{Identity: discovery.Identity{Address: alpha, Pool: "default", Generation: 3}, Ref: 9}}}, func(b []byte) []byte { return append(b, "snapshot"...) })
	f.Add(good[8 : len(good)-8])
	f.Fuzz(func(t *testing.T, body []byte) {
		// Whatever a file says under a right magic and checksum.
		b := append(slices.Clone(good[:8]), body...)
		b = binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
		s, err := decodeState(b)
		if (s == nil) == (err == nil) {
			t.Errorf("%v %v", s, err)
		}
	})
}

func cloned(m map[uint64]table.Entry) map[uint64]table.Entry {
	out := map[uint64]table.Entry{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

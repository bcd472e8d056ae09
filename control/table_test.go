package control

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/warmpath/warmpath/control/api"
)

// entriesOf reads the whole table, some pages at a time.
func entriesOf(b *bench, pages int) (out []api.Entry) {
	b.t.Helper()
	path := fmt.Sprintf("/v1/table/entries?pages=%d", pages)
	for {
		status, body := b.do("GET", path, nil, "")
		var e api.Entries
		if status != http.StatusOK {
			b.t.Fatalf("%d: %s", status, body)
		}
		if err := json.Unmarshal(body, &e); err != nil {
			b.t.Fatal(err)
		}
		out = append(out, e.Entries...)
		if e.Next == nil {
			return out
		}
		path = fmt.Sprintf("/v1/table/entries?pages=%d&epoch=%d&page=%d", pages, e.Epoch, *e.Next)
	}
}

func TestTheTableCanBeReadWholeHoweverItIsCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha, beta), Config{Workers: specs(alpha, beta)})
		<-b.s.Ready()
		g := warm(b)
		whole := entriesOf(b, api.MaxEntryPages)
		if len(whole) != len(g.entries) {
			t.Errorf("%d entries, a gateway has %d", len(whole), len(g.entries))
		}
		for _, e := range whole {
			var fp uint64
			if _, err := fmt.Sscanf(e.Fingerprint, "%x", &fp); err != nil {
				t.Fatal(err)
			}
			var refs []uint16
			for _, h := range e.Holders {
				refs = append(refs, h.Ref)
				if h.Worker != string(g.roster[h.Ref].Address) || h.Proof != "confirmed" {
					t.Errorf("%+v", h)
				}
			}
			if want := g.holders(fp); !slices.Equal(refs, slices.Sorted(slices.Values(want))) {
				t.Errorf("%s: %v, a gateway has %v", e.Fingerprint, refs, want)
			}
		}
		if cut := entriesOf(b, 7); len(cut) != len(whole) {
			t.Errorf("%d entries in small pieces, %d at once", len(cut), len(whole))
		}
	})
}

func TestTheHottestPrefixIsTheOneThatRequestsShare(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha, beta), Config{Workers: specs(alpha, beta)})
		<-b.s.Ready()
		g := warm(b)
		system := prompt("system")
		for i := range 5 {
			id, record := g.dispatch(g.refOf(alpha), prompt("system", fmt.Sprint(i)))
			g.send(nil, record, done(id, g.refOf(alpha), g.refOf(alpha), nil))
		}
		time.Sleep(100 * time.Millisecond)
		top, err := b.s.Top("default", 1)
		if err != nil || len(top) != 1 {
			t.Fatal(top, err)
		}
		if want := fmt.Sprintf("%016x", system[len(system)-1].Fingerprint); top[0].Fingerprint != want || top[0].Heat < 5 || len(top[0].Holders) != 2 {
			t.Errorf("%+v, want %s", top[0], want)
		}
	})
}

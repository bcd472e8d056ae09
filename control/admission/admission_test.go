package admission

import (
	"errors"
	"testing"
	"time"

	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/wire"
)

var begin = time.Unix(1_800_000_000, 0)

// ledger is an Admission with one pool and nobody before it.
func ledger(t *testing.T, cfg Config, settings string) *Admission {
	t.Helper()
	parsed, err := policy.ParseAdmission([]byte(settings))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Now = begin
	if cfg.Remembered == nil {
		cfg.Remembered = []Process{}
	}
	a := New(cfg)
	a.Configure(parsed, []quota.Pool{{Index: 0, Name: "chat"}}, begin)
	return a
}

func usage(sequence uint64) []byte {
	return wire.AppendUsage(nil, &wire.Usage{Nonce: 7, Sequence: sequence})
}

func TestNobodyGetsALeaseBeforeTheFleetIsKnownAndTheGatewayIsRemembered(t *testing.T) {
	full := errors.New("disk full")
	var remembered []Process
	a := ledger(t, Config{Remember: func(p []Process) error { remembered = p; return full }}, `{}`)
	if ack, err := a.Batch("gw", usage(1), nil, begin, nil); err != nil || len(ack) > 0 {
		t.Errorf("%x %v before the fleet is known", ack, err)
	}
	a.SetFleet(0, Fleet{Workers: 2, MaxRunning: 16, Requests: -1}, begin)
	if ack, err := a.Batch("gw", usage(2), nil, begin, nil); !errors.Is(err, full) || len(ack) > 0 {
		t.Errorf("%x %v, and the state can't be written", ack, err)
	}
	full = nil
	ack, err := a.Batch("gw", usage(3), nil, begin, nil)
	if err != nil || len(ack) == 0 || len(remembered) != 1 || remembered[0] != (Process{"gw", 7}) {
		t.Errorf("%x %v, remembered %v", ack, err, remembered)
	}
}

func TestTimesThatComeTwiceOrThroughALossCountOnce(t *testing.T) {
	a := ledger(t, Config{}, `{}`)
	a.SetFleet(0, Fleet{Workers: 2, MaxRunning: 16, Requests: -1}, begin)
	send := func(counts quota.Histogram) {
		array := [wire.TTFTBuckets]uint32(counts)
		if _, err := a.Batch("gw", nil, wire.AppendLatency(nil, &wire.Latency{Nonce: 7, Counts: &array}), begin, nil); err != nil {
			t.Fatal(err)
		}
	}
	send(quota.Histogram{20: 5})
	send(quota.Histogram{20: 5})        // the same batch again
	send(quota.Histogram{20: 9, 30: 1}) // one between them was lost
	send(quota.Histogram{20: 2, 30: 1}) // a VM of the gateway crashed
	send(quota.Histogram{20: 3, 30: 1})
	if w := a.pools[0].windows[0]; w[20] != 10 || w[30] != 1 {
		t.Errorf("%v %v", w[20], w[30])
	}
	a.Tick(begin.Add(2 * time.Second))
	st, _ := a.Status(begin.Add(2 * time.Second))
	if h := st.Pools[0].History; h[0].Count[0] != 11 {
		t.Errorf("%+v", h)
	}
}

func TestCapacityIsTheSettingsOrTheWorkers(t *testing.T) {
	const none = quota.NoLimit
	for name, c := range map[string]struct {
		settings policy.AdmissionPool
		fleet    Fleet
		want     quota.Capacity
	}{
		"workers":        {policy.AdmissionPool{PrefillHorizon: 500 * time.Millisecond}, Fleet{Workers: 2, MaxRunning: 64, TokensPerSecond: 20_000}, quota.Capacity{Slots: 64, TokensPerSecond: 20_000, PrefillTokens: 10_000}},
		"settings":       {policy.AdmissionPool{Slots: 10, TokensPerSecond: 1000, PrefillHorizon: time.Second}, Fleet{Workers: 2, MaxRunning: 64, TokensPerSecond: 20_000}, quota.Capacity{Slots: 10, TokensPerSecond: 2000, PrefillTokens: 2000}},
		"nothing known":  {policy.AdmissionPool{PrefillHorizon: time.Second}, Fleet{Workers: 2}, quota.Capacity{Slots: none, PrefillTokens: none}},
		"no bound":       {policy.AdmissionPool{}, Fleet{Workers: 1, MaxRunning: 8, TokensPerSecond: 5}, quota.Capacity{Slots: 8, TokensPerSecond: 5, PrefillTokens: none}},
		"nobody is left": {policy.AdmissionPool{PrefillHorizon: time.Second}, Fleet{}, quota.Capacity{PrefillTokens: none}},
	} {
		if got := capacity(c.settings, c.fleet); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

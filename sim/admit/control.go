package admit

import (
	"time"

	"github.com/warmpath/warmpath/control/admission"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/quota"
	"github.com/warmpath/warmpath/shared/wire"
)

// control is the control service's side: the very package, on the run's clock.
type control struct {
	fleet     *fleet
	admission *admission.Admission
}

// epoch is where virtual time begins.
var epoch = time.Unix(1_800_000_000, 0)

// hop is the time of a message between a gateway and control, one way.
const hop = 2 * time.Millisecond

func newControl(f *fleet) *control {
	c := &control{fleet: f, admission: admission.New(admission.Config{Now: epoch, Remembered: []admission.Process{}, Law: f.cfg.Law})}
	c.admission.Configure(f.settings, []quota.Pool{{Index: 0, Name: "chat"}}, epoch)
	c.tell()
	f.every(admission.TickInterval, func() {
		c.tell()
		c.admission.Tick(epoch.Add(f.now))
	})
	return c
}

// tell says what the live workers can carry. Failed ones are noticed at once: what a missed
// health check costs is not what is judged here.
func (c *control) tell() {
	f := c.fleet
	p := &f.cfg.Params
	requests := 0
	for _, n := range f.inUse {
		requests += n
	}
	rate := float64(time.Second) / float64(p.PrefillPerToken)
	c.admission.SetFleet(0, admission.Fleet{
		Workers: f.live(), MaxRunning: f.live() * p.MaxRunning, TokensPerSecond: rate * float64(f.live()), Requests: requests,
	}, epoch.Add(f.now))
}

// batch answers a gateway's batch.
func (c *control) batch(name string, usage, latency []byte) (leases []byte, hurry time.Duration, err error) {
	header := wire.AppendHeader(nil, &wire.Header{Kind: wire.Ack})
	ack, err := c.admission.Batch(name, usage, latency, epoch.Add(c.fleet.now), header)
	if err != nil {
		return nil, 0, err
	}
	err = wire.ForEachSection(ack, func(s wire.Section) error {
		switch s.Type {
		case wire.SectionLeases:
			leases = s.Payload
		case wire.SectionHints:
			h, err := wire.DecodeHints(s.Payload)
			hurry = time.Duration(h.BatchMillis) * time.Millisecond
			return err
		}
		return nil
	})
	return leases, hurry, err
}

// last is the latest step of the controller.
func (c *control) last() (shares quota.Shares, p99 [policy.Classes]uint32) {
	st, _ := c.admission.Status(epoch.Add(c.fleet.now))
	p := &st.Pools[0]
	if n := len(p.History); n > 0 {
		p99 = p.History[n-1].P99Millis
	}
	return p.Shares, p99
}

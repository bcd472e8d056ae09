package hosttest

import (
	"iter"

	"github.com/warmpath/warmpath/hostsim"
)

// Race sends requests at once, one to each worker in turn, and lets their
// callbacks interleave at every call that touches what workers share (shared
// data, queues, calls out), once by each schedule: hostsim.EverySchedule(2, 1000)
// tries all orders with up to two switches, hostsim.RandomSchedules(seed, 200)
// some of any kind. Afterwards check looks at what came of it. The first schedule
// for which it returns an error, or an assertion of an Exchange fails, ends the race, and its transcript shows the calls as they
// interleaved.
//
//	f := hosttest.Load(t, wasm, hosttest.Workers(2))
//	f.Race(hostsim.EverySchedule(2, 1000), func(xs []*hosttest.Exchange) error {
//		if v, _ := f.SharedData("seen"); v != "2" {
//			return fmt.Errorf("an update was lost: %s", v)
//		}
//		return f.Host.SetSharedData("", "seen", []byte("0")) // for the next schedule
//	}, hosttest.Request{Path: "/a"}, hosttest.Request{Path: "/b"})
func (f *Filter) Race(schedules iter.Seq[*hostsim.Schedule], check func([]*Exchange) error, requests ...Request) {
	f.t.Helper()
	for schedule := range schedules {
		from := len(f.lines)
		watched := &watchedT{T: f.t}
		f.t = watched
		xs := make([]*Exchange, len(requests))
		explorer := hostsim.NewExplorer(f.Host, schedule)
		for i, r := range requests {
			w := f.On(i % len(f.Fleet.Workers))
			explorer.Go(f.Fleet.Workers[w.n], func() { xs[i] = w.send(r) })
		}
		f.Host.Run()
		explorer.Close()
		if err := explorer.Err(); err != nil {
			f.t.Errorf("hosttest: %v", err)
		} else {
			f.settle()
			if err := check(xs); err != nil {
				f.t.Errorf("%v", err)
			}
		}
		f.t = watched.T
		if watched.failed {
			f.t.Fatalf("hosttest: it fails by schedule %s%s", schedule, f.story(from))
		}
	}
}

// watchedT notes failures.
type watchedT struct {
	T
	failed bool
}

func (t *watchedT) Errorf(format string, args ...any) {
	t.Helper()
	t.failed = true
	t.T.Errorf(format, args...)
}

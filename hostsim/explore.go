package hostsim

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Explorer runs the callbacks of a host's VMs as if their threads ran side by
// side. Left alone, a host on a virtual clock runs one callback after the
// other, so what only goes wrong when two VMs are inside theirs at once is
// never seen. With an Explorer a callback stands still at every host call that
// touches what VMs share (shared data, shared queues, calls out), and a
// Schedule says who goes on: the order of everything else can't matter to
// anybody. A callback may also stand still while the clock moves on, as a
// thread does that the system has taken its core from.
//
//	for schedule := range hostsim.RandomSchedules(1, 200) {
//		h := newHost()                       // a host on a virtual clock, its VMs started
//		x := hostsim.NewExplorer(h, schedule)
//		x.Invariant = func() error { ... }   // asked after every step
//		x.Go(vm, func() { stream.RequestHeaders(headers, true) })
//		h.Advance(time.Second)               // ticks, replies and x.Go's work, interleaved
//		x.Close()
//		if err := x.Err(); err != nil { t.Fatal(err) } // names the schedule and the last steps
//	}
//
// One run uses one goroutine at a time, so it is deterministic: the same
// schedule against the same module gives the same steps.
type Explorer struct {
	// Invariant is asked after every step, when no module runs; an error ends
	// the exploration and is what Err returns.
	Invariant func() error
	// Stall is asked at every step how long its VM stands still there: 0 is not
	// at all. The clock must be advanced for it to go on.
	Stall func(Step) time.Duration
	// MaxSteps ends a run that finds no end. 0: 1,000,000.
	MaxSteps int

	host     *Host
	schedule *Schedule
	threads  []*vmThread // in the order of their first work
	running  *vmThread
	steps    int
	last     []Step // the most recent of them
	draining bool
	err      error
}

// Step is a host call at which a VM stood still before it was made.
type Step struct {
	VM   string
	Call string // "proxy_set_shared_data"
	Key  string // of shared data, else empty
}

func (s Step) String() string {
	return strings.TrimSuffix(s.VM+" "+strings.TrimPrefix(s.Call, "proxy_")+" "+s.Key, " ")
}

// keptSteps is how many of the last steps an error tells.
const keptSteps = 40

// vmThread is the thread of one VM.
type vmThread struct {
	vm      *VM
	work    []func()
	resume  func() (Step, bool) // nil while no callback stands still
	yield   func(Step) bool
	at      Step
	stalled bool
}

// NewExplorer attaches an explorer to a host on a virtual clock; from then on
// Host.Run and Host.Advance interleave. Streams must be driven through Go: a
// call made directly is one step, and panics if its VM stands still inside
// another.
func NewExplorer(h *Host, s *Schedule) *Explorer {
	if h.virtual == nil {
		panic("hostsim: NewExplorer needs a VirtualClock")
	}
	x := &Explorer{host: h, schedule: s}
	h.explorer = x
	return x
}

// Go queues f for vm's thread.
func (x *Explorer) Go(vm *VM, f func()) {
	for _, t := range x.threads {
		if t.vm == vm {
			t.work = append(t.work, f)
			return
		}
	}
	x.threads = append(x.threads, &vmThread{vm: vm, work: []func(){f}})
}

// Steps is the number of steps so far.
func (x *Explorer) Steps() int { return x.steps }

// Err is the first violation of Invariant, or a run without an end.
func (x *Explorer) Err() error { return x.err }

// Close lets every callback that stands still run to its end, in order, and
// detaches the explorer. Work that has not begun runs too.
func (x *Explorer) Close() {
	x.draining = true
	for _, t := range x.threads {
		t.stalled = false
		for t.resume != nil || len(t.work) > 0 {
			x.step(t)
		}
	}
	x.host.explorer = nil
}

// run interleaves until nobody can go on, and says how many pieces of work
// ended.
func (x *Explorer) run() (ended int) {
	var current *vmThread
	ready := make([]*vmThread, 0, len(x.threads))
	for x.err == nil {
		// The one that ran stands first: choosing it is no switch.
		ready = ready[:0]
		for _, t := range x.threads {
			switch {
			case t.stalled || t.resume == nil && len(t.work) == 0:
			case t == current:
				ready = slices.Insert(ready, 0, t)
			default:
				ready = append(ready, t)
			}
		}
		if len(ready) == 0 {
			break
		}
		keeps := current != nil && ready[0] == current && current.resume != nil
		current = ready[x.schedule.choose(len(ready), keeps)]
		if x.step(current) {
			ended++
		}
		x.afterStep()
	}
	return ended
}

// step lets t run to its next host call on shared state. It answers true when
// its callback has ended.
func (x *Explorer) step(t *vmThread) (ended bool) {
	if t.resume == nil {
		f := t.work[0]
		t.work = t.work[1:]
		// The callback's own goroutine; it and this one never run at once.
		t.resume, _ = iter.Pull(func(yield func(Step) bool) {
			t.yield = yield
			f()
		})
	}
	outer := x.running
	x.running = t
	at, more := t.resume()
	x.running = outer
	if !more {
		t.resume, t.yield, t.at = nil, nil, Step{}
		return true
	}
	t.at = at
	return false
}

func (x *Explorer) afterStep() {
	x.steps++
	if x.Invariant != nil {
		if err := x.Invariant(); err != nil {
			x.fail(err)
		}
	}
	most := x.MaxSteps
	if most == 0 {
		most = 1_000_000
	}
	if x.steps >= most && x.err == nil {
		x.fail(fmt.Errorf("no end after %d steps (livelock, or raise MaxSteps)", x.steps))
	}
}

func (x *Explorer) fail(err error) {
	lines := make([]string, 0, len(x.last)+len(x.threads))
	for _, s := range x.last {
		lines = append(lines, "\t"+s.String())
	}
	for _, t := range x.threads {
		if t.resume != nil {
			lines = append(lines, "\t(stands before: "+t.at.String()+")")
		}
	}
	x.err = fmt.Errorf("%w\nschedule: %s, step %d; the last steps:\n%s", err, x.schedule, x.steps, strings.Join(lines, "\n"))
}

// point is called before a host call that touches what VMs share.
func (x *Explorer) point(in *instance, call string, args []uint64) {
	t := x.running
	if t == nil || t.vm != in.vm || x.draining {
		return
	}
	s := Step{VM: in.vm.cfg.Name, Call: call}
	if call == "proxy_get_shared_data" || call == "proxy_set_shared_data" {
		s.Key, _ = in.string(args[0], args[1])
	}
	if x.Stall != nil {
		if d := x.Stall(s); d > 0 {
			t.stalled = true
			x.host.clock.AfterFunc(d, func() { t.stalled = false })
		}
	}
	t.yield(s)
	if len(x.last) == keptSteps {
		x.last = slices.Delete(x.last, 0, 1)
	}
	x.last = append(x.last, s)
}

// sharing are the host calls whose order between VMs can be told from inside.
var sharing = map[string]bool{
	"proxy_get_shared_data": true, "proxy_set_shared_data": true,
	"proxy_register_shared_queue": true, "proxy_resolve_shared_queue": true,
	"proxy_enqueue_shared_queue": true, "proxy_dequeue_shared_queue": true,
	"proxy_http_call": true,
}

// Schedule decides who goes on at each step of an Explorer.
type Schedule struct {
	name string
	rng  *rand.Rand
	// Without rng: the choices to make, then the first of each.
	path     []choice
	made     int
	switches int // still allowed
}

type choice struct{ at, of int }

func (s *Schedule) String() string { return s.name }

// choose draws one of n threads. keeps tells that the first is inside a
// callback, so another one would be a switch.
func (s *Schedule) choose(n int, keeps bool) int {
	if n == 1 {
		return 0
	}
	if s.rng != nil {
		return s.rng.IntN(n)
	}
	if keeps && s.switches == 0 {
		return 0
	}
	if s.made == len(s.path) {
		s.path = append(s.path, choice{0, n})
	}
	at := s.path[s.made].at
	s.made++
	if keeps && at > 0 {
		s.switches--
	}
	return at
}

// RandomSchedule draws every choice evenly; the same seed draws the same.
func RandomSchedule(seed uint64) *Schedule {
	return &Schedule{name: fmt.Sprintf("RandomSchedule(%d)", seed), rng: rand.New(rand.NewPCG(seed, 0))}
}

// RandomSchedules is n of them, from a seed on.
func RandomSchedules(seed uint64, n int) iter.Seq[*Schedule] {
	return func(yield func(*Schedule) bool) {
		for i := range uint64(n) {
			if !yield(RandomSchedule(seed + i)) {
				return
			}
		}
	}
}

// EverySchedule is every order with at most switches changes of thread inside a
// callback, depth first, but no more than limit of them. Most faults of
// concurrent programs need one or two such changes to show (M. Musuvathi,
// S. Qadeer, "Iterative context bounding", 2007). Each schedule must be used
// to its end, on a host made anew, before the next is asked for.
func EverySchedule(switches, limit int) iter.Seq[*Schedule] {
	return func(yield func(*Schedule) bool) {
		var path []choice
		for i := range limit {
			s := &Schedule{name: fmt.Sprintf("number %d of EverySchedule(%d, ...)", i, switches), path: path, switches: switches}
			if !yield(s) {
				return
			}
			path = s.path[:s.made]
			for len(path) > 0 && path[len(path)-1].at+1 == path[len(path)-1].of {
				path = path[:len(path)-1]
			}
			if len(path) == 0 {
				return
			}
			path[len(path)-1].at++
		}
	}
}

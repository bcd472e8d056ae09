package hostsim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Fault is something that goes wrong on purpose, at an exact call: the n-th
// that matches, counted over all VMs from the moment of Host.Inject. Under a
// virtual clock the same faults therefore hit the same calls every time.
//
// As text (ParseFault, String):
//
//	[vm/]call[@callback][:n|:n-m|:n+]=what
//
//	proxy_on_request_body:2=trap            the second body callback traps before it runs
//	proxy_on_tick:3=trap-after              the third tick does its work, then traps
//	proxy_set_shared_data=CasMismatch       the first write is refused
//	proxy_get_property@proxy_on_log:1+=NotFound  every property read from the access log
//	worker_1/proxy_set_shared_data:2=trap   the VM dies in its second write
//	proxy_on_memory_allocate:5=fail         the module has no memory for the host's fifth answer
//	memory.grow:1+=fail                     linear memory cannot grow any more
//	proxy_http_call:1=lose                  no reply comes (a timeout still ends the call)
//	proxy_on_queue_ready=lose               the wake-up is not delivered
//	proxy_on_tick:4=stall 2s                the VM's thread stands still before its fourth tick
//	proxy_on_tick:4=clock -1h               the wall clock is set back before it
//
// Names may leave out "proxy_".
type Fault struct {
	VM     string // VMConfig.Name; empty: any VM
	Call   string // a host call, a callback, _initialize, an allocator, or memory.grow
	During string // only within this callback; empty: anywhere
	From   int    // first matching call that is hit, from 1; 0 is 1
	To     int    // last one; 0: only From; negative: all from From on
	Do     FaultKind
	Status string        // FaultAnswer: the status, "CasMismatch"
	By     time.Duration // FaultStall, FaultClock

	answer status
}

// FaultKind is what goes wrong.
type FaultKind uint8

// The kinds of faults.
const (
	// FaultTrap ends the VM instead of the call, FaultTrapAfter after the call has
	// taken effect (a half-finished callback, a write without what follows it).
	FaultTrap FaultKind = iota
	FaultTrapAfter
	// FaultAnswer: a host call is not carried out and answers Status.
	FaultAnswer
	// FaultFail: an allocation in the module answers null, memory does not grow.
	FaultFail
	// FaultLose: an http_call is never answered but by its timeout; a tick, a queue
	// message's wake-up or a reply is not delivered.
	FaultLose
	// FaultStall: the VM takes its ticks, wake-ups and replies By later, in order.
	FaultStall
	// FaultClock: the wall clock jumps by By before the call; timers do not notice.
	FaultClock
)

var faultWords = [...]string{"trap", "trap-after", "", "fail", "lose", "stall", "clock"}

func (f Fault) String() string {
	var b strings.Builder
	if f.VM != "" {
		b.WriteString(f.VM + "/")
	}
	b.WriteString(f.Call)
	if f.During != "" {
		b.WriteString("@" + f.During)
	}
	from := max(f.From, 1)
	switch {
	case f.To < 0:
		fmt.Fprintf(&b, ":%d+", from)
	case f.To > from:
		fmt.Fprintf(&b, ":%d-%d", from, f.To)
	default:
		fmt.Fprintf(&b, ":%d", from)
	}
	b.WriteByte('=')
	switch f.Do {
	case FaultAnswer:
		b.WriteString(f.Status)
	case FaultStall:
		b.WriteString("stall " + f.By.String())
	case FaultClock:
		b.WriteString("clock ")
		if f.By >= 0 {
			b.WriteByte('+')
		}
		b.WriteString(f.By.String())
	default:
		b.WriteString(faultWords[f.Do])
	}
	return b.String()
}

// ErrFault is wrapped by what ParseFault and Inject refuse.
var ErrFault = errors.New("no such fault")

// ParseFault reads the text form of a Fault.
func ParseFault(text string) (Fault, error) {
	var f Fault
	fail := func(format string, args ...any) (Fault, error) {
		return Fault{}, fmt.Errorf("fault %q: %w: %s", text, ErrFault, fmt.Sprintf(format, args...))
	}
	where, what, ok := strings.Cut(strings.TrimSpace(text), "=")
	if !ok {
		return fail("want [vm/]call[@callback][:n|:n-m|:n+]=what, such as proxy_on_request_body:2=trap")
	}
	where = strings.TrimSpace(where)
	if vm, rest, ok := strings.Cut(where, "/"); ok {
		f.VM, where = vm, rest
	}
	where, count, counted := strings.Cut(where, ":")
	if counted && !f.parseCount(count) {
		return fail("%q is no count: want 2 (the second), 2-4 or 2+ (from the second on)", count)
	}
	f.Call, f.During, _ = strings.Cut(where, "@")

	word, by, _ := strings.Cut(strings.TrimSpace(what), " ")
	switch at := slices.Index(faultWords[:], word); {
	case at >= 0 && word != "":
		f.Do = FaultKind(at)
	default:
		f.Do, f.Status = FaultAnswer, word
	}
	if f.Do == FaultStall || f.Do == FaultClock {
		d, err := time.ParseDuration(strings.TrimSpace(by))
		if err != nil {
			return fail("%s needs a duration: %s 2s", word, word)
		}
		f.By = d
	} else if by != "" {
		return fail("nothing may follow %s", word)
	}
	if err := f.complete(); err != nil {
		return fail("%s", err)
	}
	return f, nil
}

func (f *Fault) parseCount(s string) bool {
	from, to, isRange := strings.Cut(s, "-")
	open := strings.HasSuffix(s, "+") && !isRange
	n, err := strconv.Atoi(strings.TrimSuffix(from, "+"))
	if err != nil || n < 1 {
		return false
	}
	f.From = n
	switch {
	case open:
		f.To = -1
	case isRange:
		m, err := strconv.Atoi(to)
		if err != nil || m < n {
			return false
		}
		f.To = m
	case strings.HasSuffix(from, "+"):
		return false
	}
	return true
}

// posted are the callbacks that are delivered by a loop and not by a stream: they
// can be lost or late.
var posted = []string{"proxy_on_tick", "proxy_on_queue_ready", "proxy_on_http_call_response"}

const memoryGrow = "memory.grow"

var allocators = []string{"proxy_on_memory_allocate", "malloc"}

// complete fills in defaults and full names, or says what is wrong.
func (f *Fault) complete() error {
	f.From = max(f.From, 1)
	if f.To >= 0 {
		f.To = max(f.To, f.From)
	}
	var err error
	if f.Call, err = fullName(f.Call); err != nil {
		return err
	}
	if f.During != "" {
		if f.During, err = fullName(f.During); err != nil {
			return err
		}
		if _, ok := callbackShapes[f.During]; !ok {
			return fmt.Errorf("%s is no callback of the module", f.During)
		}
	}
	_, isHostCall := callShapes[f.Call]
	_, isCallback := callbackShapes[f.Call]
	isMemory := f.Call == memoryGrow || slices.Contains(allocators, f.Call)
	switch f.Do {
	case FaultTrap:
		if f.Call == memoryGrow {
			return errors.New("memory.grow does not trap: it can only fail")
		}
	case FaultTrapAfter:
		if isMemory {
			return errors.New("trap-after is for callbacks and host calls")
		}
	case FaultAnswer:
		if !isHostCall {
			return fmt.Errorf("%s answers no status: it can trap%s", f.Call, map[bool]string{true: " or fail"}[isMemory])
		}
		if f.answer, err = parseStatus(f.Status); err != nil {
			return err
		}
		f.Status = f.answer.String()
	case FaultFail:
		if !isMemory {
			return errors.New("fail is for proxy_on_memory_allocate, malloc and memory.grow")
		}
	case FaultLose:
		if f.Call != "proxy_http_call" && !slices.Contains(posted, f.Call) {
			return fmt.Errorf("only proxy_http_call, %s can be lost", strings.Join(posted, ", "))
		}
	case FaultStall:
		if !slices.Contains(posted, f.Call) || f.By <= 0 {
			return fmt.Errorf("a stall takes a positive duration and comes before %s", strings.Join(posted, ", "))
		}
	case FaultClock:
		if !isCallback && !isHostCall {
			return errors.New("the clock jumps before a callback or a host call")
		}
	default:
		return fmt.Errorf("kind %d is unknown", f.Do)
	}
	return nil
}

// fullName finds a call by its name, with or without "proxy_".
func fullName(name string) (string, error) {
	for _, full := range []string{name, "proxy_" + name} {
		_, isHostCall := callShapes[full]
		_, isCallback := callbackShapes[full]
		if isHostCall || isCallback || full == memoryGrow || slices.Contains(allocators, full) {
			return full, nil
		}
	}
	return "", fmt.Errorf("%q is no host call or callback of proxy-wasm 0.2.1%s", name, suggest(name))
}

// suggest names the known calls that contain the longest part of a wrong name.
func suggest(name string) string {
	var near []string
	words := strings.FieldsFunc(strings.TrimPrefix(name, "proxy_"), func(r rune) bool { return r == '_' })
	best := 0
	try := func(full string) {
		hits := 0
		for _, w := range words {
			if len(w) > 2 && strings.Contains(full, w) {
				hits++
			}
		}
		switch {
		case hits > best:
			best, near = hits, []string{full}
		case hits == best && hits > 0:
			near = append(near, full)
		}
	}
	for full := range callShapes {
		try(full)
	}
	for full := range callbackShapes {
		try(full)
	}
	if len(near) == 0 || len(near) > 6 {
		return ""
	}
	slices.Sort(near)
	return " (is it " + strings.Join(near, ", ") + "?)"
}

func parseStatus(name string) (status, error) {
	for i, known := range statusNames {
		if strings.EqualFold(name, known) {
			return status(i), nil
		}
	}
	return 0, fmt.Errorf("%q is neither trap, trap-after, fail, lose, stall, clock nor one of %s", name, strings.Join(statusNames[:], ", "))
}

// Inject puts faults in force, beside those that are; their counts start now. It
// may be called at any time, from anywhere.
func (h *Host) Inject(faults ...Fault) error {
	ready := make([]*activeFault, 0, len(faults))
	for _, f := range faults {
		if err := f.complete(); err != nil {
			return fmt.Errorf("inject %s: %w: %w", f, ErrFault, err)
		}
		if f.Do == FaultClock && h.virtual == nil {
			return fmt.Errorf("inject %s: %w: a real clock cannot be moved (give the host a VirtualClock)", f, ErrFault)
		}
		ready = append(ready, &activeFault{Fault: f})
	}
	h.faults.mu.Lock()
	defer h.faults.mu.Unlock()
	h.faults.active = append(h.faults.active, ready...)
	h.faults.armed.Store(len(h.faults.active) > 0)
	return nil
}

// ClearFaults ends every fault and says which never hit anything: in a test, a
// mistake.
func (h *Host) ClearFaults() (missed []Fault) {
	h.faults.mu.Lock()
	defer h.faults.mu.Unlock()
	for _, f := range h.faults.active {
		if f.seen < f.From {
			missed = append(missed, f.Fault)
		}
	}
	h.faults.active = nil
	h.faults.armed.Store(false)
	return missed
}

// faultSet is the faults in force.
type faultSet struct {
	armed  atomic.Bool
	mu     sync.Mutex
	active []*activeFault
}

type activeFault struct {
	Fault
	seen int
}

// fault counts a call and returns the fault that hits it, told in the trace; a
// clock fault is carried out. The first one that hits counts.
func (in *instance) fault(call string) *Fault { return in.hit(call, false) }

// hit looks among the faults of calls, or among those of deliveries.
func (in *instance) hit(call string, delivery bool) *Fault {
	set := &in.host.faults
	if !set.armed.Load() {
		return nil
	}
	var hit *Fault
	set.mu.Lock()
	for _, f := range set.active {
		if f.Call != call || f.ofDelivery() != delivery || f.VM != "" && f.VM != in.vm.cfg.Name || f.During != "" && f.During != in.callback {
			continue
		}
		f.seen++
		if hit == nil && f.seen >= f.From && (f.To < 0 || f.seen <= f.To) {
			hit = &f.Fault
		}
	}
	set.mu.Unlock()
	if hit == nil {
		return nil
	}
	in.tell(in.event(EventFault, hit.String()))
	if hit.Do == FaultClock {
		in.host.virtual.Jump(hit.By)
		return nil
	}
	return hit
}

// faultPosted asks for the fault of a callback that is about to be delivered:
// true if it is lost, or late and will come by again.
func (in *instance) faultPosted(call string, again, lost func()) (gone bool) {
	f := in.hit(call, true)
	if f == nil {
		return false
	}
	if f.Do == FaultStall {
		in.vm.Stall(f.By)
		in.vm.Post(again)
	} else {
		lost()
	}
	return true
}

// ofDelivery says whether a fault keeps a callback from being made.
func (f *Fault) ofDelivery() bool {
	return f.Do == FaultStall || f.Do == FaultLose && f.Call != "proxy_http_call"
}

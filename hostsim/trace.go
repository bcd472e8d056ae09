package hostsim

import (
	"fmt"
	"strings"

	"github.com/tetratelabs/wazero/api"
)

// Event is one step between host and module, in readable form: see
// Options.Trace. Its String is a line of a transcript:
//
//	#2 proxy_on_request_headers(headers 3, end_of_stream false)
//	#2   proxy_get_header_map_value(request_headers, ":path") = Ok "/v1/chat"
//	#2   proxy_replace_header_map_value(request_headers, "x-tenant", "a") = Ok
//	#2 proxy_on_request_headers = Continue
type Event struct {
	VM     string // VMConfig.Name
	Plugin string // PluginConfig.Name; empty while a VM starts
	// Context is the context that the module was called for; 0 while a VM starts.
	Context uint32
	Kind    EventKind
	// Name is the export or import: "proxy_on_tick", "proxy_log", "fd_write".
	Name string
	// Args are the decoded arguments in the ABI's order: header names, buffer
	// types, quoted text (shortened above 96 bytes).
	Args []string
	// Result is a callback's action or a host call's status; empty where there is
	// none.
	Result string
	// Out is what a host call gave back besides its status.
	Out []string
}

// EventKind says which way an Event goes.
type EventKind uint8

// The kinds of events.
const (
	// EventCallback: the host enters the module. EventReturn: it is back; only for
	// callbacks that answer something, or that trapped.
	EventCallback EventKind = iota
	EventReturn
	// EventHostCall: the module called the host, with what it was answered.
	EventHostCall
	// EventAllocate: the host asked the module for memory, within a host call.
	EventAllocate
	// EventWASI: the module called a WASI function.
	EventWASI
	// EventFault: a fault of Host.Inject takes effect on the next line.
	EventFault
)

func (e Event) String() string {
	var b strings.Builder
	if e.Context != 0 {
		fmt.Fprintf(&b, "#%d ", e.Context)
	}
	switch e.Kind {
	case EventFault:
		return b.String() + "!! fault " + e.Name
	case EventHostCall, EventWASI:
		b.WriteString("  ")
	case EventAllocate:
		b.WriteString("    ")
	}
	b.WriteString(e.Name)
	if e.Kind != EventReturn {
		b.WriteByte('(')
		b.WriteString(strings.Join(e.Args, ", "))
		b.WriteByte(')')
	}
	if e.Result != "" {
		b.WriteString(" = " + e.Result)
	}
	if len(e.Out) > 0 {
		b.WriteString(" " + strings.Join(e.Out, ", "))
	}
	return b.String()
}

// watched says whether anybody looks on: a trace or a fault.
func (h *Host) watched() bool { return h.opts.Trace != nil || h.faults.armed.Load() }

// event starts an Event about what happens in the instance now.
func (in *instance) event(kind EventKind, name string) Event {
	e := Event{VM: in.vm.cfg.Name, Kind: kind, Name: name}
	c := in.current
	if c.root != nil {
		e.Plugin, e.Context = c.root.cfg.Name, c.root.id
	}
	if c.stream != nil {
		e.Context = c.stream.id
	}
	return e
}

func (in *instance) tell(e Event) {
	if in.host.opts.Trace != nil {
		in.host.opts.Trace(e)
	}
}

// enter runs an export of the module: in.args in, the result in in.args[0].
func (in *instance) enter(f api.Function, n int) error {
	stack := in.args[:max(n, 1)]
	if !in.host.watched() {
		return f.CallWithStack(in.ctx, stack)
	}
	name := in.fn.nameOf(f)
	in.callback = name
	defer func() { in.callback = "" }()
	shape, known := callbackShapes[name]
	if in.host.opts.Trace != nil {
		e := in.event(EventCallback, name)
		e.Args = shape.args(stack, n)
		in.tell(e)
	}
	fault := in.fault(name)
	if fault != nil && fault.Do == FaultTrap {
		in.tellReturn(name, "trap")
		return injectedTrap{fault.String()}
	}
	err := f.CallWithStack(in.ctx, stack)
	if err == nil && fault != nil && fault.Do == FaultTrapAfter {
		err = injectedTrap{fault.String()}
	}
	switch {
	case err != nil:
		in.tellReturn(name, "trap")
	case known && shape.result != nil:
		in.tellReturn(name, shape.result(uint32(stack[0])))
	}
	return err
}

func (in *instance) tellReturn(name, result string) {
	if in.host.opts.Trace == nil {
		return
	}
	e := in.event(EventReturn, name)
	e.Result = result
	in.tell(e)
}

// hostCall runs a host call of the module, under trace and faults if there are
// any.
func (in *instance) hostCall(name string, run func(*instance, []uint64) status, stack []uint64) status {
	if in.initialising && name != "proxy_log" {
		panic(restrictedCall{name})
	}
	if !in.host.watched() {
		return run(in, stack)
	}
	tracing := in.host.opts.Trace != nil
	var args [12]uint64
	copy(args[:], stack)
	shape := callShapes[name]
	e := in.event(EventHostCall, name)
	if tracing {
		e.Args = shape.inputs(in, args[:])
	}
	fault := in.fault(name)
	var st status
	switch {
	case fault == nil:
		st = run(in, stack)
	case fault.Do == FaultTrap:
		e.Result = "trap"
		in.tell(e)
		panic(injectedTrap{fault.String()})
	case fault.Do == FaultAnswer:
		st = fault.answer
	default:
		in.loseCall = fault.Do == FaultLose
		st = run(in, stack)
		in.loseCall = false
	}
	if tracing {
		e.Result = st.String()
		if st == statusOK {
			e.Out = shape.outputs(in, args[:])
		}
		in.tell(e)
	}
	if fault != nil && fault.Do == FaultTrapAfter {
		panic(injectedTrap{fault.String()})
	}
	return st
}

// enterAllocate asks the module for in.alloc1[0] bytes.
func (in *instance) enterAllocate() error {
	if !in.host.watched() {
		return in.fn.alloc.CallWithStack(in.ctx, in.alloc1[:])
	}
	name := in.fn.nameOf(in.fn.alloc)
	e := in.event(EventAllocate, name)
	e.Args = []string{itoa(int(in.alloc1[0]))}
	if fault := in.fault(name); fault != nil {
		e.Result = "trap"
		if fault.Do == FaultTrap {
			in.tell(e)
			return injectedTrap{fault.String()}
		}
		in.alloc1[0] = 0 // what an allocator answers when it has nothing
		e.Result = "null"
		in.tell(e)
		return nil
	}
	err := in.fn.alloc.CallWithStack(in.ctx, in.alloc1[:])
	if in.host.opts.Trace != nil {
		e.Result = fmt.Sprintf("0x%x", uint32(in.alloc1[0]))
		if err != nil {
			e.Result = "trap"
		}
		in.tell(e)
	}
	return err
}

// injectedTrap is a trap that was ordered.
type injectedTrap struct{ fault string }

func (t injectedTrap) Error() string { return "injected fault " + t.fault }

// nameOf is the export behind one of the table's functions. Their definitions
// do not say: a linker may fold two callbacks of the same code into one.
func (t *exportTable) nameOf(f api.Function) string {
	for i := range exportNames {
		if n := &exportNames[i]; n.of(t) == f {
			return n.name
		}
	}
	if names := f.Definition().ExportNames(); len(names) > 0 {
		return names[0]
	}
	return f.Definition().DebugName()
}

var exportNames = [...]struct {
	name string
	of   func(*exportTable) api.Function
}{
	{"proxy_on_request_headers", func(t *exportTable) api.Function { return t.requestHeaders }},
	{"proxy_on_request_body", func(t *exportTable) api.Function { return t.requestBody }},
	{"proxy_on_request_trailers", func(t *exportTable) api.Function { return t.requestTrailers }},
	{"proxy_on_response_headers", func(t *exportTable) api.Function { return t.responseHeaders }},
	{"proxy_on_response_body", func(t *exportTable) api.Function { return t.responseBody }},
	{"proxy_on_response_trailers", func(t *exportTable) api.Function { return t.responseTrailers }},
	{"proxy_on_tick", func(t *exportTable) api.Function { return t.tick }},
	{"proxy_on_queue_ready", func(t *exportTable) api.Function { return t.queueReady }},
	{"proxy_on_http_call_response", func(t *exportTable) api.Function { return t.callResponse }},
	{"proxy_on_context_create", func(t *exportTable) api.Function { return t.contextCreate }},
	{"proxy_on_vm_start", func(t *exportTable) api.Function { return t.vmStart }},
	{"proxy_on_configure", func(t *exportTable) api.Function { return t.configure }},
	{"proxy_on_done", func(t *exportTable) api.Function { return t.done }},
	{"proxy_on_log", func(t *exportTable) api.Function { return t.log }},
	{"proxy_on_delete", func(t *exportTable) api.Function { return t.delete }},
}

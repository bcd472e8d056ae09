package hostsim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tetratelabs/wazero/api"
)

// TrapError says how a module ended: errors.As finds it in what NewVM,
// AddPlugin, Reload and VM.Err return.
type TrapError struct {
	VM       string // VMConfig.Name
	Callback string // "proxy_on_request_body"; "_initialize" at the start
	// Reason is the engine's word: "wasm error: unreachable", "wasm error: stack
	// overflow", "the module exited with code 2".
	Reason string
	// Panic is the module's own last word within the callback: the panic that Go
	// wrote to standard error ("panic: runtime error: index out of range [3] with
	// length 0"), or a critical log line, as the SDKs of Rust and AssemblyScript
	// write. Empty if it said nothing.
	Panic string
	// Stack is the functions under way, the innermost first. After a Go panic it
	// is the goroutine's, with lines; else the engine's.
	Stack []Frame

	err error
}

func (e *TrapError) Unwrap() error { return e.err }

// Error is the reason, then what the module said, then the stack with the
// language's own frames and repetitions folded.
func (e *TrapError) Error() string {
	var b strings.Builder
	b.WriteString(e.Reason)
	if e.Callback != "" {
		fmt.Fprintf(&b, "\nin %s of %s", e.Callback, e.VM)
	}
	if e.Panic != "" {
		b.WriteString("\n" + e.Panic)
	}
	for _, line := range foldFrames(e.Stack) {
		b.WriteString("\n\t" + line)
	}
	return b.String()
}

// foldFrames is one line a frame, but one for the same frame again and again
// (recursion) and one for a row of the runtime's.
func foldFrames(stack []Frame) []string {
	var lines []string
	for i := 0; i < len(stack); {
		n := 1
		if stack[i].Runtime {
			for i+n < len(stack) && stack[i+n].Runtime {
				n++
			}
			if n > 2 {
				lines = append(lines, fmt.Sprintf("... %d frames of the runtime (%s first)", n, stack[i].Function))
				i += n
				continue
			}
			n = 1
		}
		for i+n < len(stack) && stack[i+n].Function == stack[i].Function {
			n++
		}
		line := stack[i].String()
		if n > 1 {
			line += fmt.Sprintf(" (%d times)", n)
		}
		lines = append(lines, line)
		i += n
	}
	return lines
}

// trap makes a TrapError of what wazero says about the end of a call.
func (in *instance) trap(f api.Function, err error) *TrapError {
	e := &TrapError{VM: in.vm.cfg.Name, Callback: in.fn.nameOf(f), err: err}
	reason, trace, _ := strings.Cut(err.Error(), "\nwasm stack trace:\n")
	trace, _, _ = strings.Cut(trace, "\n\nGo runtime stack trace:")
	e.Reason = strings.TrimSuffix(reason, " (recovered by wazero)")
	if in.exited {
		e.Reason = fmt.Sprintf("the module exited with code %d", in.exitCode)
	}
	e.Stack = in.vm.cfg.Module.symbols.frames(trace)
	var stack []Frame
	if e.Panic, stack = readPanic(in.lastWords); len(stack) > 0 {
		e.Stack = stack
	}
	if e.Panic == "" {
		e.Panic = in.lastCritical
	}
	return e
}

// maxLastWords is how many lines of a module's standard error are kept for the
// case that it traps.
const maxLastWords = 200

// hear keeps what the module wrote to standard error.
func (in *instance) hear(line string) {
	if len(in.lastWords) == maxLastWords {
		in.lastWords = slices.Delete(in.lastWords, 0, 1)
	}
	in.lastWords = append(in.lastWords, line[:min(len(line), 4<<10)])
}

// readPanic finds the last panic in lines of standard error. Of Go's dump it
// takes the frames of the panicking goroutine:
//
//	panic: boom
//
//	goroutine 1 [running]:
//	main.crash(...)
//		/src/main.go:12 +0x3
func readPanic(lines []string) (message string, stack []Frame) {
	at := -1
	for i, line := range lines {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.Contains(line, "panicked at ") {
			at = i
		}
	}
	if at < 0 {
		return "", nil
	}
	message = lines[at]
	if strings.HasSuffix(message, ":") && at+1 < len(lines) {
		message += " " + lines[at+1] // Rust since 1.73: the place, then the reason
	}
	running := slices.IndexFunc(lines[at:], func(l string) bool { return strings.HasPrefix(l, "goroutine ") && strings.HasSuffix(l, ":") })
	if running < 0 {
		return message, nil
	}
	for i := at + running + 1; i+1 < len(lines); i++ {
		place, ok := strings.CutPrefix(lines[i+1], "\t")
		if !ok {
			break
		}
		function := lines[i]
		if cut := strings.LastIndexByte(function, '('); cut > 0 {
			function = function[:cut]
		}
		f := Frame{Function: strings.TrimPrefix(function, "created by ")}
		place, _, _ = strings.Cut(place, " +0x")
		if colon := strings.LastIndexByte(place, ':'); colon > 0 {
			f.File = place[:colon]
			f.Line, _ = strconv.Atoi(place[colon+1:])
		}
		f.Runtime = isRuntime(f.Function) || f.Function == "panic"
		stack = append(stack, f)
		i++
	}
	return message, stack
}

// Err is the trap that ended the VM's instance, nil while it lives (again). It
// wraps a *TrapError; after Close, ErrFailed.
func (vm *VM) Err() error {
	if vm.inst == nil {
		return nil
	}
	return vm.inst.failure
}

package abi

import (
	"math/bits"
	"runtime"
	"strconv"
	"strings"
)

// OnPanic, if set, is told the export whose callback panicked, to bump a
// metric. A panic in OnPanic itself is swallowed.
var OnPanic func(callback string)

var (
	panics       uint64
	panicsByName map[string]uint64
)

// Panics is how many callbacks of this VM have panicked.
func Panics() uint64 { return panics }

// recovered is deferred by every callback, so that a panic ends the callback
// with the result set so far instead of the VM. The log line names callback,
// value and source line; of a callback that panics again and again the 1st,
// 2nd, 4th, 8th ... are logged, as each request may be one.
func recovered(callback string) {
	value := recover()
	if value == nil {
		return
	}
	into = nil // a host call may have been in progress
	if panicsByName == nil {
		panicsByName = map[string]uint64{}
	}
	panics++
	panicsByName[callback]++
	if n := panicsByName[callback]; bits.OnesCount64(n) == 1 {
		Log(LogError, "panic in "+callback+" ("+strconv.FormatUint(n, 10)+"): "+describe(value)+panicSite())
	}
	if OnPanic != nil {
		tellOnPanic(callback)
	}
}

// Guard runs f, which does another stream's work within a callback: a panic in
// it ends that work alone. It is told and counted under name.
func Guard(name string, f func()) {
	defer recovered(name)
	f()
}

func tellOnPanic(callback string) {
	defer func() { _ = recover() }()
	OnPanic(callback)
}

// describe formats a panic value without package fmt.
func describe(value any) string {
	switch v := value.(type) {
	case error:
		return v.Error()
	case string:
		return v
	case interface{ String() string }:
		return v.String()
	}
	return "(a value that is neither error nor string)"
}

// panicSite is " at function file:line" of the innermost frame outside the
// runtime, or nothing. Function tables survive -ldflags=-s -w.
func panicSite() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])]) // 3: past Callers, panicSite, recovered
	for {
		frame, more := frames.Next()
		if frame.Function != "" && !strings.HasPrefix(frame.Function, "runtime.") {
			file := frame.File[strings.LastIndexByte(frame.File, '/')+1:]
			return " at " + frame.Function + " " + file + ":" + strconv.Itoa(frame.Line)
		}
		if !more {
			return ""
		}
	}
}

//go:build !bare

package main

import "errors"

// panicIn says how the next calls of a callback panic.
var panicIn = map[string]string{}

type location struct{ name string }

func (l location) String() string { return "stringer " + l.name }

var (
	nothing *location
	noMap   map[string]int
	zero    int
	fives   = []int{5}
)

var panics = map[string]func(){
	"string":   func() { panic("a string") },
	"error":    func() { panic(errors.New("an error")) },
	"stringer": func() { panic(location{"value"}) },
	"other":    func() { panic(42) },
	"nil":      func() { nothing.name = "x" },
	"index":    func() { fives[len(fives)+zero]++ },
	"map":      func() { noMap["x"] = 1 },
	"divide":   func() { zero = 1 / zero },
	"convert":  func() { zero = any(nothing).(interface{ Missing() int }).Missing() },
}

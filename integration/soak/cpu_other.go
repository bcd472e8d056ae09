//go:build !linux

package main

import "time"

var processStart = time.Now()

// threadCPU falls back on the wall clock, an upper bound: only Linux has a
// thread clock that Go can read.
func threadCPU() time.Duration { return time.Since(processStart) }

func processCPU() time.Duration { return time.Since(processStart) }

func residentBytes() int64 { return 0 }

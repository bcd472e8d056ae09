//go:build !wasip1

// Package cputime is the clock of a guest: the CPU time of its process, by the operating system
// or, in a VM, by the host.
package cputime

import "syscall"

// Nanos is the process's CPU time in nanoseconds (in microsecond steps).
func Nanos() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // the benchmark measures nothing without it
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

//go:build !wasip1

package main

import "syscall"

// cpu is the process's CPU time in nanoseconds (in microsecond steps).
func cpu() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // the benchmark measures nothing without it
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

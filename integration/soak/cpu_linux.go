package main

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/warmpath/warmpath/integration/envoyrun"
)

// threadCPU is the processor time of the calling thread, to the nanosecond.
func threadCPU() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic("read the thread's clock: " + err.Error()) // every Linux has it
	}
	return time.Duration(t.Nano())
}

// processCPU is the processor time of the process.
func processCPU() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		panic("read the process' clock: " + err.Error())
	}
	return time.Duration(t.Nano())
}

// residentBytes is the memory of the process, 0 when /proc cannot be read.
func residentBytes() int64 {
	n, err := envoyrun.ResidentBytes(os.Getpid())
	if err != nil {
		return 0
	}
	return n
}

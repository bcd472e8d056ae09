package envoyrun

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// DieWithParent makes the kernel end Envoy when this process dies, so that a
// test run that is cut off leaves no Envoy behind.
func DieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// CPU returns the processor time of all threads of a process, in nanosecond
// steps: the first field of /proc/<pid>/task/<tid>/schedstat.
func CPU(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	if len(files) == 0 {
		return 0, fmt.Errorf("no threads of process %d in /proc: it has ended", pid)
	}
	var sum time.Duration
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has just ended
		}
		field, _, _ := bytes.Cut(data, []byte(" "))
		ns, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", file, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// ResidentBytes returns the resident memory of a process.
func ResidentBytes(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	fields := bytes.Fields(data)
	if len(fields) < 2 {
		return 0, fmt.Errorf("read the memory of process %d: statm says %q", pid, data)
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return pages * int64(os.Getpagesize()), nil
}

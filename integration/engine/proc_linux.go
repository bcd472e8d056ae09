package engine

import "syscall"

// processGroup puts an engine into a group of its own, for its core is a child and
// both end together. When this process dies without a word the kernel asks the
// engine to end, who takes its core along.
func processGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

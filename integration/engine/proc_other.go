//go:build !linux

package engine

import "syscall"

// processGroup puts an engine into a group of its own.
func processGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

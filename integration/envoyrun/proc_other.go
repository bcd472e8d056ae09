//go:build !linux

package envoyrun

import (
	"errors"
	"syscall"
	"time"
)

// DieWithParent exists on linux only.
func DieWithParent() *syscall.SysProcAttr { return nil }

var errNoProc = errors.New("process figures are read from /proc, which only linux has")

// CPU is measured on linux only.
func CPU(int) (time.Duration, error) { return 0, errNoProc }

// ResidentBytes is measured on linux only.
func ResidentBytes(int) (int64, error) { return 0, errNoProc }

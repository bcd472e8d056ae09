//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package control

import (
	"errors"
	"os"
)

func lockFile(*os.File) error { return errors.ErrUnsupported }

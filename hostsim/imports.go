package hostsim

import (
	"context"
	"strconv"

	"github.com/tetratelabs/wazero"
)

type instance struct{}

func itoa(n int) string { return strconv.Itoa(n) }

func instantiateImports(ctx context.Context, r wazero.Runtime) error { return nil }

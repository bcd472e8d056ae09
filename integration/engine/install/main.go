// Command install puts the engine of make test-engine into the user's cache and
// prints the path of its Python:
//
//	go run ./integration/engine/install
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/warmpath/warmpath/integration/engine"
)

func main() { os.Exit(run(os.Stdout, os.Stderr)) }

func run(stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	home, err := engine.Install(ctx, stderr)
	if err == nil {
		_, err = home.WriteModel(ctx)
	}
	if err != nil {
		fmt.Fprintln(stderr, "install:", err)
		return 1
	}
	fmt.Fprintln(stdout, home.Python)
	return 0
}

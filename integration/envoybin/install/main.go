// Command install puts Envoy releases into the user's cache and prints the
// path of each executable, one per line:
//
//	go run ./integration/envoybin/install 1.40.0,1.36.2
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/warmpath/warmpath/integration/envoybin"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	versions, err := envoybin.ParseVersions(strings.Join(args, ","))
	if err != nil {
		fmt.Fprintf(stderr, "install: %v\nusage: go run ./integration/envoybin/install VERSION[,VERSION]\n", err)
		return 2
	}
	for _, version := range versions {
		path, err := envoybin.Install(ctx, version)
		if err != nil {
			fmt.Fprintf(stderr, "install envoy %s: %v\n", version, err)
			return 1
		}
		fmt.Fprintln(stdout, path)
	}
	return 0
}

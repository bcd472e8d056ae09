// Printvectors prints the golden vectors of package fingerprint on the build target it was
// built for.
package main

import (
	"os"
	"strings"

	"github.com/warmpath/warmpath/shared/fingerprint/internal/vectors"
)

func main() {
	if _, err := os.Stdout.WriteString(strings.Join(vectors.Lines(), "\n") + "\n"); err != nil {
		os.Exit(1)
	}
}

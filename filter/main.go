// Command filter is the proxy-wasm module: the wiring of the plugin to the
// proxy's callbacks. Build it with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -trimpath -ldflags="-s -w" -o bin/warmpath.wasm ./filter
//
// and add -tags noresponsebody for the variant that never looks at response
// bodies. The Go runtime of a c-shared module runs the inits and never main.
package main

import "github.com/warmpath/warmpath/filter/plugin"

func init() { plugin.Start() }

func main() {}

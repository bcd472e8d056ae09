// Package envoy proves on real Envoys what examples/envoy promises.
//
// A version travels like this: envoyrun starts it from the shipped example
// (stop-iteration flag) and again from the shipped companion example (buffer
// and header_mutation), with the module built from this tree, the control
// service in this process, and six simulated workers behind their own
// listeners. Every scenario is one subtest, named by what it proves; at the end
// a table of versions and scenarios is printed.
//
//	make envoy-test ENVOY=1.40.0,1.36.2
//	go test ./integration/envoy -tags envoy -run TestEnvoy/1.40.0/headers -v
//
// Environment: ENVOY lists the versions (default 1.40.0). Flags: -requests is
// how many requests each load scenario sends at least, -table writes the table
// as Markdown.
package envoy

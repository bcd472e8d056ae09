// Package discovery knows which workers exist and how each of them is.
//
// One worker's way through the package: a Spec is read from the list (inline,
// file or HTTP body; [Parse] refuses a list whole or takes it whole), the
// [Monitor] starts one probe loop for it, each [Observation] of that loop
// changes the record that the [Fleet] keeps, and the record's identity
// (address, pool, generation) is given a ref. When the process behind the
// address turns out to be another one, the old ref is retired and a new one
// takes its place, so whatever was said about the old process names nobody.
//
// The Fleet decides and never waits; the Monitor waits and never decides.
package discovery

// Package copies proves that gateways make the copies of a hot prefix in slices, and that the
// requests then find them: with real processes' parts, a control service, workers of sim/live with a
// vocabulary, and whatever proxy the caller puts between.
//
// A run travels like this: Start runs the workers and the control service; the caller starts a proxy
// before them, and [Fleet.Prove] sends it crowds of clients whose prompts begin with the same text.
// What every engine was asked and what it found cached is noted on its own side of the wire: slices
// are judged by what the engine computed for them, and copies by what it then had.
//
// The embedded gateway is proved here (make test), Envoy in integration/envoy (make envoy-test).
package copies

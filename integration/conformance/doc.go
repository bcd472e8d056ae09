// Package conformance holds hostsim to what a real Envoy does.
//
// A scenario (testdata/*.txt) is a story in plain text: the settings of a
// plugin, a script of what its filter does in each callback, what client,
// upstream and control server do, step by step, and all that follows: callbacks
// with their arguments, what each host call answered, what each side of the
// proxy received. It travels like this: Parse reads the file, Sim.Play and
// Envoy.Play put hostsim or a real Envoy through its steps, and each returns the
// same scenario with the transcript that it saw. The files hold Envoy's
// (-rewrite writes them anew); hostsim is compared with them on every test run,
// Envoy itself by make conformance.
package conformance

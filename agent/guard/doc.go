// Package guard is a reverse proxy before one engine that lets in what the
// engine can carry, and tells at once what it can't.
//
//	client -- gateway -- guard -- engine
//	                       |  ^
//	     refused, try the  |  | running, waiting, KV share: scraped 4 to 10 times a
//	     second choice  <--+  | second, and what was let in since, at once
//
// A request's way through the package: its path says whether it is work for the
// engine (everything else passes), its headers whose it is and what it weighs. The
// gate lets it in, or into its class' queue, or refuses it (gate.go). While it
// waits its body is read ahead, within the bounds of the queue, so that a client
// that leaves is noticed (ahead.go). Let in, it is passed on without an edit and its
// answer without a delay (proxy.go); the first byte of the answer says that its
// prompt is computed, the end that its place is free, and whoever waits first
// follows.
//
// A refusal is an answer that says so: `x-warmpath-refused: <reason>` with 503 (or
// 429 where the limit is the tenant's own), before anything reached the engine. A
// gateway sends such a request to its second choice, once.
//
// The gate is pure: times are arguments, and one lock around it makes it one
// decision after the other.
package guard

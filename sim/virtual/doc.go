// Package virtual plays a fleet in virtual time, to judge routing rules.
//
// A request travels through it as through the real thing. A Source makes it:
// who, when, how long, and which blocks of tokens its prompt shares with whom.
// A gateway, one of several, looks its checkpoints up in the index, which knows
// what engines hold a moment late (index.go); fills a route.View with reports
// that are a moment old and its own books that are not (gateway.go); and asks a
// Rule, mostly route.Choose itself, the very function of the proxy module. The
// chosen engine (package engine) queues, prefills, caches and decodes it. When
// it is done, the conversation goes on.
//
// What is real: the decision, the checkpoints' schedule, the engine's block
// cache. What is modelled: tokens are numbers, delays are constants that a file
// measured on a live system can replace, and time moves from event to event, so
// a run says the same on any machine.
package virtual

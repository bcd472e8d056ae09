// Package index is the truth behind the cache-location table: which worker
// holds which checkpoint, as far as dispatches imply it and engines confirm it.
//
// One request's way through the package: its dispatch report becomes a path in
// the model of the chosen worker's cache (predicted), pushing out what that
// cache would push out; its done report proves the path (confirmed), shortens
// what the engine turned out not to hold, or moves the path to the worker that
// really served. Every change of who holds a fingerprint makes it dirty, and
// [Index.Drain] hands the dirty ones to the publisher.
//
// A worker holds a checkpoint only when it holds everything before it, so a
// model is a forest in which a child is never more recently used than its
// parent: what is evicted first is always a leaf, and removing a node removes
// all that is beyond it.
//
// Time and randomness come from the caller; nothing here waits.
package index

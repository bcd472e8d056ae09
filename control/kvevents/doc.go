// Package kvevents turns what engines say about their prefix caches into
// fingerprints: vLLM's and SGLang's KV events.
//
// One event's way through the package: a [Source] reads a ZMQ message of the
// engine's publisher, checks its sequence number and asks the engine's replay
// socket for what is missing; [Decode] reads the msgpack payload, whatever
// release wrote it; a [Map] chains the event's token ids into the fingerprints
// that gateways ask for and tells its [Sink] which checkpoints the engine holds
// and which no longer. What a source knows can be saved and restored
// ([Source.AppendSave]): the stream then goes on from where it stood.
//
// Engines' own block hashes only serve as names of blocks: they depend on a
// seed, on a release, on the path of an adapter. What a block holds is told by
// its token ids, adapter and cache salt.
package kvevents

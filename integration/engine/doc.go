// Package engine proves what warmpath says of engines on a real one: vLLM, on
// the CPU, with a tiny model of random weights.
//
// A run travels like this: Install puts the engine into the user's cache,
// WriteModel writes weights, an adapter and a published tokenizer beside it,
// Process.Run starts it and waits until it is healthy. Record follows what it
// publishes with the engine's own libraries, and Holdings keeps the plainest map
// of it: whatever the control service says of the same engine must agree with
// that map, and with what the engine itself answers (/tokenize, cached_tokens,
// /metrics).
//
//	make test-engine
//	make test-engine ENGINE='-figures figures.json'
//	go test -tags engine ./integration/engine -run 'TestEngine/gateway' -v
package engine

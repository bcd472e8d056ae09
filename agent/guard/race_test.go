//go:build race

package guard

// aborts are as many requests as the race detector bears: its runtime gives up
// somewhere beyond.
const aborts = 20_000

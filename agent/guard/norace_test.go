//go:build !race

package guard

const aborts = 100_000

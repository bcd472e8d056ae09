package admit

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

// lognormal draws with a mean and a coefficient of variation.
func lognormal(rng *rand.Rand, mean, cv float64) int {
	variance := math.Log(1 + cv*cv)
	return int(math.Exp(math.Log(mean) - variance/2 + math.Sqrt(variance)*rng.NormFloat64()))
}

// sorted returns a map's keys in order, so that a run is the same each time.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

package workload

import (
	"math"
	"math/rand/v2"
	"sort"
)

// logNormal draws with the given mean and coefficient of variation.
func logNormal(rng *rand.Rand, mean, cv float64) float64 {
	sigma2 := math.Log1p(cv * cv)
	return mean * math.Exp(math.Sqrt(sigma2)*rng.NormFloat64()-sigma2/2)
}

func (l Lengths) draw(rng *rand.Rand) int {
	return min(max(int(math.Round(logNormal(rng, l.MeanTokens, l.CV))), l.Min), l.Max)
}

// quantiles draws n lengths that follow the distribution closely even for a
// small n: one from each n-th of it, in random order. A hundred independent
// draws would miss the mean by 5 % and put the difference into every result.
func (l Lengths) quantiles(rng *rand.Rand, n int) []int {
	sigma := math.Sqrt(math.Log1p(l.CV * l.CV))
	shape := make([]float64, n)
	sum := 0.0
	for i := range shape {
		z := math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/float64(n)-1)
		shape[i] = math.Exp(sigma * z)
		sum += shape[i]
	}
	out := make([]int, n)
	for i, v := range shape {
		tokens := math.Round(v / sum * float64(n) * l.MeanTokens)
		out[i] = min(max(int(tokens), l.Min), l.Max)
	}
	rng.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// zipf draws ranks 0..n-1 with weight (rank+1)^-s.
type zipf struct{ cumulative []float64 }

func newZipf(n int, s float64) zipf {
	z := zipf{make([]float64, n)}
	sum := 0.0
	for i := range z.cumulative {
		sum += math.Pow(float64(i+1), -s)
		z.cumulative[i] = sum
	}
	return z
}

func (z zipf) draw(rng *rand.Rand) int {
	n := len(z.cumulative)
	return min(sort.SearchFloat64s(z.cumulative, rng.Float64()*z.cumulative[n-1]), n-1)
}

// stream derives an independent generator for one purpose.
func stream(seed uint64, purpose, index uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, purpose<<32^index*0x9e3779b97f4a7c15))
}

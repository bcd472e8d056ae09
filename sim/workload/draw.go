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

// quantiles returns n lengths that follow the distribution closely even for a
// small n: the middle of each n-th part of it, ascending. A hundred independent
// draws would miss the mean by 5 % and put the difference into every result.
func (l Lengths) quantiles(n int) []int {
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
	return out
}

// shuffleFairly puts lengths into a random order in which popular tenants have
// neither longer nor shorter prompts than others: of many orders it takes the
// one whose mean, weighted by popularity and by its square, is nearest to the
// plain mean. Left to chance, the few busiest tenants would decide the hit rate
// of a seed: it moved by a third.
func shuffleFairly(rng *rand.Rand, lengths []int, z zipf) {
	mean := 0.0
	for _, v := range lengths {
		mean += float64(v) / float64(len(lengths))
	}
	best := math.Inf(1)
	order := append([]int(nil), lengths...)
	for range 2000 {
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		var once, twice, sum, squares float64
		for i, v := range order {
			w := z.weight(i)
			once += w * (float64(v) - mean)
			twice += w * w * (float64(v) - mean)
			sum += w
			squares += w * w
		}
		if off := math.Abs(once/sum) + math.Abs(twice/squares); off < best {
			best = off
			copy(lengths, order)
		}
	}
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

func (z zipf) weight(rank int) float64 {
	if rank == 0 {
		return z.cumulative[0]
	}
	return z.cumulative[rank] - z.cumulative[rank-1]
}

func (z zipf) draw(rng *rand.Rand) int {
	n := len(z.cumulative)
	return min(sort.SearchFloat64s(z.cumulative, rng.Float64()*z.cumulative[n-1]), n-1)
}

// stream derives an independent generator for one purpose.
func stream(seed uint64, purpose, index uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, purpose<<32^index*0x9e3779b97f4a7c15))
}

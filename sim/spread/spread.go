// Package spread measures how unevenly work lies on workers.
package spread

import "math"

// CoV is the coefficient of variation: standard deviation over mean, 0 when
// the mean is.
func CoV(values []float64) float64 {
	mean, square := 0.0, 0.0
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		square += (v - mean) * (v - mean) / float64(len(values))
	}
	if mean == 0 {
		return 0
	}
	return math.Sqrt(square) / mean
}

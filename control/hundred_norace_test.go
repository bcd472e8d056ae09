//go:build !race

package control

// hundredCores is the most that a hundred workers may take of a core.
const hundredCores = 0.8

//go:build race

package control

// hundredCores is what a hundred workers take under the race detector, with room.
const hundredCores = 4

package main

import (
	"strings"

	"github.com/warmpath/warmpath/shared/route"
)

const (
	// rented marks the machines that cost money by the minute: they have a network of their own.
	rented = "10.9."
	// worth is how much sooner, in seconds, a rented machine must begin to answer to be used.
	worth = 0.5
)

// score is the time in which a worker begins to answer, in seconds and negative, as the highest
// score wins: what is ahead of the request there, then the part of its prompt that isn't cached.
// Rented workers count as half a second slower, so that they are for peaks.
func score(_ *route.Request, w *route.Worker, f *route.Facts) float64 {
	seconds := float64(w.UncachedTokens+f.UncachedTokens) / f.PrefillRate
	if strings.HasPrefix(w.Address, rented) {
		seconds += worth
	}
	return -seconds
}

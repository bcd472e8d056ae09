// Package quota says who may send how much, over all gateways together.
//
// What the fleet can carry travels through it like this. In the control service the Ledger knows
// each pool's limit and splits it: among the classes by their shares, lending what one does not
// ask for (Divide); among the tenants of a class by their weights; among the gateways by what
// their tenants ask for. A gateway gets its part as a lease with every batch it sends, and reports
// with the next one what it has in use. On the path the gateway asks its Grant and its Credit,
// all of them, and takes then from all; who has to wait stands in a Queue.
//
// Everything here is a function of its arguments: no clock, no I/O, no goroutine. Times are
// nanoseconds of the caller's monotonic clock.
//
// The ledger keeps three promises, whatever is lost, late, doubled or restarted:
//
//   - What all gateways may have in use never exceeds the limit (a limit that shrinks is reached
//     by what drains).
//   - A slot is given to somebody else only after the gateway that had it said that it is free,
//     or can't have it any more.
//   - Refused work costs nothing.
//
// Sources: leases as in C. Gray and D. Cheriton, SOSP 1989; the division among clients and the
// learning after a restart as in Doorman (YouTube, 2016).
package quota

// Package control is the companion service: it knows the workers, learns from
// the gateways' reports which of them holds which prefix, and gives every
// gateway the table that says so.
//
// How one fact travels: a gateway's batch arrives at the api, ingest applies it
// to the index, the index marks fingerprints dirty, the loop of this package
// drains them into the published table at most every CoalesceInterval, and the
// long-polls of all gateways return with the change. Facts about workers come
// from discovery the same way, as the ROSTER and LOADS sections.
//
// Nothing on the gateways' request path waits for this service. When it is
// gone they go on with the table they have; when it comes back without its
// state file it tells them to keep it while it learns.
package control

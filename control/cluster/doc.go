// Package cluster lets several control services act as one: it elects the leader, keeps the
// documents that all must agree on, and carries what one of them hears to the others.
//
// A replica opens a Cluster: on a NATS server inside its own process, alone or with the servers of
// the other replicas, or as a client of an external NATS cluster. Documents (policy, worker
// references, the ledger's checkpoint) are keys of one KV bucket: read with a revision, replaced by
// compare-and-set, watched by everybody. The leader's lease is one more key, which its holder renews
// and nobody else may replace before it has itself watched one revision for the whole lease. Events
// go over subjects, without a memory: who isn't there misses them.
package cluster

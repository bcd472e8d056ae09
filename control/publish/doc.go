// Package publish turns the index into what gateways fetch: pages of the
// cache-location table, a log of the changes since any recent version, and the
// sections about workers and policy.
//
// A change's way through the package: the index drains it into a [Batch],
// [Table.Apply] writes it into its page and into the log under a new version and
// wakes who waits on [Table.Changed]; each gateway then asks [Table.Update] for
// all that happened since its own version and gets one frame. A gateway that is
// too far behind, or comes from another epoch, is told to compare digests and
// fetches the ranges that differ with [Table.Pages].
//
// The log holds fingerprints, not entries: a frame carries the state of now, so
// ten changes of one entry cost a slow gateway one entry, and nobody has to be
// waited for.
package publish

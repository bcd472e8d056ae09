// Package homes decides which workers shall hold a pool's hot prefixes.
//
// A hot prefix is one that so many requests begin with that a single worker can't serve them
// all. The routing rule prices every copy of a prefix, as a copy pushes something else out; that
// keeps caches apart, and makes it slow to copy the one prefix that needs copies. So somebody who
// sees all requests names its homes, and a home that has no copy yet gets one for its plain price.
//
// A dispatch travels through the package like this: [Heat.Add] counts every checkpoint of its
// prompt, old counts fading; twice a second [Planner.Plan] looks for checkpoints whose share of
// the requests exceeds a worker's, takes the deepest of each chain, and gives it as many homes as
// those of its requests need that are on their way. What has cooled loses its homes, but not its copies: these age as all else.
//
// Time comes from the caller, on any clock that doesn't go back. Nothing here waits or draws.
package homes

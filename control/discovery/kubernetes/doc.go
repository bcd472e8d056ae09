// Package kubernetes finds workers in a Kubernetes cluster: the pods of a label
// selector, the endpoints of a Service (its EndpointSlices), or the pods that a
// GIE InferencePool selects.
//
// A pod's way through the package: a mirror lists and watches one kind of object
// in one namespace and keeps of each what matters here (pods.go, slices.go,
// pool.go read objects, nothing else does); the source turns what its mirrors
// hold into a list of Specs, a few milliseconds after the API server told of a
// change, and says why there is none while the API server can't be asked. The
// mirrors keep what they hold then.
//
// What Kubernetes says becomes this:
//
//	pod uid, restarts of the engine's container   the worker's incarnation
//	terminating, or not ready                     drained, with the reason
//	succeeded, failed, without an address         not listed
//	annotations and labels warmpath.dev/...       settings of the worker
//
// A pod that isn't ready stays listed, because its cache stays too.
package kubernetes

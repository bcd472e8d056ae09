// Package kubernetes runs discovery and examples/kubernetes against a real API
// server (make kube-test).
//
// The API server and its etcd are built once, from the Go modules that
// tools/go.mod pins, into the user's cache; a Cluster runs the two on loopback,
// without nodes: pods are objects whose status the tests write themselves, so
// what a kubelet does in minutes happens when a test wants it. Everything that
// an API server decides is real: watches and their ends, uids, finalisation of
// deleted pods, RBAC, tokens of service accounts, schemas.
package kubernetes

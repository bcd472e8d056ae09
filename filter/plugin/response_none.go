//go:build noresponsebody

package plugin

// readsResponseBody is false in the build without a response-body callback:
// streaming costs nothing there, the prefill share is returned with the
// response headers and usage is estimated from response.size.
const readsResponseBody = false

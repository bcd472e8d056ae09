// Package transcripts tests the finished module as a proxy sees it: the real
// wasm in hostsim, a scripted control service, and stories in testdata that
// are compared whole (run with -rewrite to write them anew).
package transcripts

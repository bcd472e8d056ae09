package hosttest

import "testing"

// A module that has been compiled before is started.
func BenchmarkLoad(b *testing.B) {
	load(b, "")
	b.ResetTimer()
	for b.Loop() {
		f := load(b, "")
		f.Fleet.Close()
	}
}

// A request with its transcript.
func BenchmarkRequest(b *testing.B) {
	f := load(b, "request_headers: silent\nrequest_body: silent\nresponse_headers: silent\nresponse_body: silent\nlog: silent\ndone: silent\ndelete: silent")
	for b.Loop() {
		f.Post("/", "body")
		f.lines, f.logs = nil, nil
	}
}

package hosttest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the transcript in testdata")

// TestAStoryInGold is a filter that asks an authorizer about every request. The
// transcript in testdata is what -update wrote.
func TestAStoryInGold(t *testing.T) {
	f := load(t, strings.Join([]string{
		"configure: tick 1000",
		"request_headers: get request authorization; call auth /check 500; hold; pause",
		"call_response: get call :status; effective held; set request x-user ann; resume",
		"response_headers: remove response server",
		"log: prop response/code_details",
	}, "\n"), Cluster("auth", nil), Upstream(func(Request) Response {
		return Response{Headers: Header("server", "u"), Chunks: []string{"a", "b"}}
	}))
	x := f.Get("/v1/models", "authorization", "Bearer x")
	f.Call("auth").Answer(200, "")
	x.Status(200).NoHeader("server")
	f.Advance(time.Second)
	CompareFile(t, "testdata/TestAStoryInGold.txt", f.Transcript(), *update)
}

func TestGoldenShowsTheFirstDifferenceAndIsRewritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b.txt")
	fake := &failing{TB: t}
	func() {
		defer func() { _ = recover() }()
		CompareFile(fake, path, "one\n", false)
	}()
	CompareFile(t, path, "one\ntwo\nthree\n", true)
	CompareFile(t, path, "one\ntwo\nthree\n", false)
	CompareFile(fake, path, "one\n2\nthree\n", false)
	if len(fake.messages) != 2 || !strings.Contains(fake.messages[0], "-update writes it") || !strings.Contains(fake.messages[1], "  one\n- two\n- three\n- \n+ 2\n") {
		t.Errorf("%q", fake.messages)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "one\ntwo\nthree\n" {
		t.Errorf("%q, %v", b, err)
	}
}

package gateway

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// TestRanksBehindOnePortAreOneEndpoint: the control service lists each
// data-parallel rank as a worker, and they are reached at one address.
func TestRanksBehindOnePortAreOneEndpoint(t *testing.T) {
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"workers":[{"address":"10.0.0.7:8000@0","pool":"p"},{"address":"10.0.0.7:8000@1","pool":"p"},{"address":"[fd00::7]:8000@3","pool":"p"},{"address":"10.0.0.8:8000","pool":"p"}]}`)
	}))
	defer control.Close()
	known, err := NewEndpoints("")
	if err != nil {
		t.Fatal(err)
	}
	if err := known.pull(t.Context(), control.Client(), control.URL, ""); err != nil {
		t.Fatal(err)
	}
	want := []string{"10.0.0.7:8000", "10.0.0.8:8000", "[fd00::7]:8000"}
	if got := known.known.Load().pools["p"]; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

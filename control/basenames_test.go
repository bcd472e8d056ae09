package control

import (
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/control/discovery"
)

// lists answers GET /v1/models with one document, 404 where it is empty.
type lists string

func (l lists) RoundTrip(r *http.Request) (*http.Response, error) {
	status := http.StatusOK
	if l == "" || r.URL.Path != "/v1/models" {
		status = http.StatusNotFound
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(string(l))), Header: http.Header{}, Request: r}, nil
}

// TestTheBaseModelsBlocksAreNotClaimedForAdapters: a pool lists what clients ask
// for, adapters included; what is stored for the base model is none of theirs.
func TestTheBaseModelsBlocksAreNotClaimedForAdapters(t *testing.T) {
	const served lists = `{"data":[{"id":"tiny","parent":null},{"id":"alias","parent":null},{"id":"ad","parent":"tiny"}]}`
	for _, c := range []struct {
		lists
		pool  []string
		model string
		want  []string
	}{
		{served, []string{"tiny", "ad"}, "", []string{"tiny"}},
		{served, []string{"alias", "tiny", "ad", "of another worker"}, "", []string{"alias", "tiny"}},
		{served, []string{"*"}, "", []string{"alias", "tiny"}},
		{served, []string{"alias", "*"}, "", []string{"alias", "tiny"}},
		{served, []string{"named", "tiny"}, "named", []string{"named", "tiny"}},
		{served, []string{"ad"}, "", []string{}},
		{"", []string{"tiny", "ad", "*"}, "", []string{"tiny", "ad"}}, // nobody knows better
		{"", []string{"*", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, "", []string{"1", "2", "3", "4", "5", "6", "7", "8"}},
	} {
		f := &feed{key: feedKey{address: "10.0.0.1:8000", events: discovery.KVEvents{Model: c.model}}}
		s := &Service{log: slog.New(slog.DiscardHandler)}
		if got := f.baseNames(t.Context(), s, &http.Client{Transport: c.lists}, c.pool); !slices.Equal(got, c.want) {
			t.Errorf("%q of %v, model %q: %v, want %v", c.lists, c.pool, c.model, got, c.want)
		}
	}
}

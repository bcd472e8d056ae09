package kvevents

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestAdaptersAreNoNamesOfTheBaseModel(t *testing.T) {
	for _, c := range []struct {
		body   string
		status int
		want   []string
	}{
		// As vLLM 0.32 answers with two names and an adapter, shortened.
		{`{"object":"list","data":[{"id":"tiny","root":"/models/tiny","parent":null},{"id":"alias","root":"/models/tiny","parent":null},{"id":"tiny-adapter","root":"/adapters/a","parent":"tiny"}]}`, 200, []string{"tiny", "alias"}},
		{`{"data":[{"id":"only"}]}`, 200, []string{"only"}},
		{`{"data":[{"id":"a","parent":"gone"}]}`, 200, nil},
		{`{"data":[]}`, 200, nil},
		{`not found`, 404, nil},
		{`<html>`, 200, nil},
	} {
		engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/models" || r.Header.Get("Authorization") != "Bearer secret" {
				t.Errorf("%s with %q", r.URL.Path, r.Header.Get("Authorization"))
			}
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}))
		names, err := BaseModels(t.Context(), engine.Client(), strings.TrimPrefix(engine.URL, "http://"), "secret")
		engine.Close()
		if !slices.Equal(names, c.want) || c.want == nil != errors.Is(err, ErrNoList) {
			t.Errorf("%s: %v, %v", c.body, names, err)
		}
	}
	if _, err := BaseModels(t.Context(), http.DefaultClient, "127.0.0.1:1", ""); err == nil || errors.Is(err, ErrNoList) {
		t.Errorf("an engine that isn't there: %v", err)
	}
}

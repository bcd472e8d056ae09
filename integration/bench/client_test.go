package bench

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// worker answers without a network.
type worker func(*http.Request) (*http.Response, error)

func (w worker) RoundTrip(r *http.Request) (*http.Response, error) { return w(r) }

func TestAPacedClientKeepsItsRateHoweverLongAnswersTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClient(64)
		var sent atomic.Int64
		c.http.Transport = worker(func(*http.Request) (*http.Response, error) {
			sent.Add(1)
			time.Sleep(100 * time.Millisecond)
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(Reply))}, nil
		})
		build := func(int) (*http.Request, error) { return http.NewRequest(http.MethodPost, "http://worker/", nil) }
		began := time.Now()
		if err := c.Paced(t.Context(), 1000, 100, build); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); sent.Load() != 1000 || took < 9*time.Second || took > 11*time.Second {
			t.Errorf("%d requests at 100/s took %v", sent.Load(), took)
		}
		broken := errors.New("broken")
		c.http.Transport = worker(func(*http.Request) (*http.Response, error) { return nil, broken })
		if err := c.Paced(t.Context(), 1000, 100, build); !errors.Is(err, broken) {
			t.Errorf("%v, want the first error", err)
		}
	})
}

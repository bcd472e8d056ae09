package live

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/warmpath/warmpath/sim/engine"
)

// quiet is a listener that nobody connects to.
type quiet struct{ closed chan struct{} }

func (q quiet) Accept() (net.Conn, error) {
	<-q.closed
	return nil, net.ErrClosed
}

func (q quiet) Close() error {
	close(q.closed)
	return nil
}
func (quiet) Addr() net.Addr { return &net.TCPAddr{} }

// TestWorkersOfSeveralBubblesShareNoChannel, though they share scratch memory.
func TestWorkersOfSeveralBubblesShareNoChannel(t *testing.T) {
	for range 4 {
		synctest.Test(t, func(t *testing.T) {
			w, err := Start(Config{Name: "w", Listener: quiet{make(chan struct{})}, Engine: engine.DefaultParams(), EventTokens: 8})
			if err != nil {
				t.Fatal(err)
			}
			answer := httptest.NewRecorder()
			w.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/v1/chat/completions",
				strings.NewReader(`{"model":"m","stream":true,"max_tokens":8,"messages":[{"role":"user","content":"hello"}]}`)))
			if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), "[DONE]") {
				t.Errorf("%d %s", answer.Code, answer.Body)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

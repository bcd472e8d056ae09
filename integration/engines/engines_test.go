package engines

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// echo answers the body it got and counts how often it was restarted.
type echo struct{ restarts atomic.Int64 }

func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }

func (e *echo) Restart() error { e.restarts.Add(1); return nil }

func (e *echo) Close() error { return nil }

func start(t *testing.T, n int) *Fleet {
	t.Helper()
	fleet, stop, err := Start(n, func(string) (Engine, error) { return &echo{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return fleet
}

func send(t *testing.T, w *Worker, body string) (status int, answer, by string, err error) {
	t.Helper()
	resp, err := http.Post("http://"+w.Address+"/v1/x", "text/plain", strings.NewReader(body))
	if err != nil {
		return 0, "", "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), resp.Header.Get(ServedBy), err
}

func TestWhatArrivesIsNotedWithItsDigest(t *testing.T) {
	fleet := start(t, 2)
	fleet.Record()
	if status, answer, by, err := send(t, fleet.Workers[1], "hello"); err != nil || status != 200 || answer != "hello" || by != fleet.Workers[1].Address {
		t.Fatalf("%d %q by %s, %v", status, answer, by, err)
	}
	notes := fleet.Recorded()
	sum := sha256.Sum256([]byte("hello"))
	want := hex.EncodeToString(sum[:])
	if len(notes) != 1 || notes[0].BodySHA256 != want || notes[0].AnswerSHA256 != want || notes[0].BodyBytes != 5 || notes[0].Worker != fleet.Workers[1].Address {
		t.Errorf("noted %+v", notes)
	}
}

func TestOnlyTheOrderedNumberOfRequestsIsRefused(t *testing.T) {
	fleet := start(t, 2)
	fleet.RefuseFirst(2, http.StatusTooManyRequests)
	for i, want := range []int{429, 429, 200} {
		if status, _, _, err := send(t, fleet.Workers[i%2], "x"); err != nil || status != want {
			t.Errorf("request %d: %d, %v, want %d", i, status, err, want)
		}
	}
}

func TestAKilledWorkerComesBackOnItsAddressAsANewProcess(t *testing.T) {
	fleet := start(t, 1)
	w := fleet.Workers[0]
	w.Kill()
	if _, _, _, err := send(t, w, "x"); err == nil {
		t.Error("a killed worker answered")
	}
	if err := w.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status, _, _, err := send(t, w, "x"); err != nil || status != 200 {
		t.Errorf("after the restart: %d, %v", status, err)
	}
	if n := w.engine.(*echo).restarts.Load(); n != 1 {
		t.Errorf("the engine was restarted %d times", n)
	}
}

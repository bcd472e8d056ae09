package replicas

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet is the replicas behind a set: each host answers as it is told.
type fleet struct {
	mu     sync.Mutex
	asked  []string // host path body
	answer map[string]func(*http.Request) (int, error)
}

func (f *fleet) RoundTrip(req *http.Request) (*http.Response, error) {
	body := ""
	if req.Body != nil {
		b, _ := io.ReadAll(req.Body)
		body = string(b)
	}
	f.mu.Lock()
	f.asked = append(f.asked, req.URL.Host+" "+req.URL.Path+" "+body)
	answer := f.answer[req.URL.Host]
	f.mu.Unlock()
	status, err := 200, error(nil)
	if answer != nil {
		status, err = answer(req)
	}
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(req.URL.Host))}, nil
}

func (f *fleet) set(host string, answer func(*http.Request) (int, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer[host] = answer
}

func refused(*http.Request) (int, error)  { return 0, errors.New("connection refused") }
func unready(*http.Request) (int, error)  { return 503, nil }
func good(*http.Request) (int, error)     { return 200, nil }
func conflict(*http.Request) (int, error) { return 409, nil }

// three replicas, of which "a" is the first choice.
func three(t *testing.T) (*Set, *fleet, *time.Time) {
	t.Helper()
	f := &fleet{answer: map[string]func(*http.Request) (int, error){}}
	s, err := New([]string{"http://a:1/", "http://b:1", "http://c:1/base"}, f)
	if err != nil {
		t.Fatal(err)
	}
	s.home, s.at = 0, 0
	now := time.Unix(1_700_000_000, 0)
	s.now = func() time.Time { return now }
	return s, f, &now
}

// ask sends one request and returns the host that answered.
func ask(t *testing.T, s *Set) string {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.URL()+"/v1/batch", strings.NewReader("reports"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.RoundTrip(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	host, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 200 {
		return resp.Status + string(host)
	}
	return string(host)
}

func TestARequestGoesOnToTheNextReplicaAndStaysThere(t *testing.T) {
	s, f, now := three(t)
	if got := ask(t, s); got != "a:1" {
		t.Fatalf("began at %s", got)
	}
	f.set("a:1", refused)
	f.set("b:1", unready)
	if got := ask(t, s); got != "c:1" {
		t.Fatalf("answered by %s", got)
	}
	if want := "c:1 /base/v1/batch reports"; f.asked[len(f.asked)-1] != want {
		t.Errorf("asked for %q, want %q", f.asked[len(f.asked)-1], want)
	}
	f.set("a:1", good)
	f.set("b:1", good)
	*now = now.Add(time.Second)
	before := len(f.asked)
	for range 20 {
		if got := ask(t, s); got != "c:1" {
			t.Fatalf("moved to %s without need", got)
		}
	}
	if len(f.asked) != before+20 {
		t.Error("others were asked, too")
	}
	if at, moves := s.At(); at != "http://c:1/base" || moves != 2 {
		t.Errorf("at %s after %d moves", at, moves)
	}
}

func TestTheFirstChoiceIsTriedAgainAfterAWhile(t *testing.T) {
	s, f, now := three(t)
	f.set("a:1", refused)
	ask(t, s)
	*now = now.Add(2 * HomeAfter)
	if got := ask(t, s); got != "b:1" {
		t.Fatalf("answered by %s while the first choice is down", got)
	}
	f.set("a:1", good)
	*now = now.Add(2 * HomeAfter)
	if got := ask(t, s); got != "a:1" {
		t.Errorf("answered by %s, the first choice is back", got)
	}
}

func TestAReplicaThatFailedIsLeftAloneForAWhile(t *testing.T) {
	s, f, now := three(t)
	for _, host := range []string{"a:1", "b:1", "c:1"} {
		f.set(host, refused)
	}
	for range 5 {
		if got := ask(t, s); !strings.Contains(got, "refused") {
			t.Fatal(got)
		}
	}
	f.set("b:1", good)
	*now = now.Add(2 * backoffMost)
	if got := ask(t, s); got != "b:1" {
		t.Errorf("answered by %s", got)
	}
}

func TestWhatAReplicaAnswersIsItsAnswer(t *testing.T) {
	s, f, _ := three(t)
	f.set("a:1", conflict)
	ask(t, s)
	if len(f.asked) != 1 {
		t.Errorf("%v: a refusal is no reason to ask another", f.asked)
	}
}

func TestWithAllGoneTheLastAnswerCounts(t *testing.T) {
	s, f, _ := three(t)
	for _, host := range []string{"a:1", "b:1", "c:1"} {
		f.set(host, unready)
	}
	if got := ask(t, s); !strings.HasSuffix(got, "c:1") || len(f.asked) != 3 {
		t.Errorf("%s after %v", got, f.asked)
	}
}

// TestALongPollLeavesWithTheOthers: a host that has fallen silent is found out by
// a request with a short time, and the one that would wait long goes with it.
func TestALongPollLeavesWithTheOthers(t *testing.T) {
	s, f, _ := three(t)
	waiting := make(chan struct{})
	f.set("a:1", func(req *http.Request) (int, error) {
		close(waiting)
		<-req.Context().Done()
		return 0, context.Cause(req.Context())
	})
	polled := make(chan string)
	go func() { polled <- ask(t, s) }()
	<-waiting
	f.set("a:1", refused)
	if got := ask(t, s); got != "b:1" {
		t.Fatalf("the quick one was answered by %s", got)
	}
	if got := <-polled; got != "b:1" {
		t.Errorf("the poll ended with %s", got)
	}
}

func TestGatewaysBeginAtAllReplicas(t *testing.T) {
	begun := map[int]int{}
	for range 100 {
		s, err := New([]string{"http://a", "http://b", "http://c"}, &fleet{})
		if err != nil {
			t.Fatal(err)
		}
		begun[s.at]++
	}
	if len(begun) != 3 {
		t.Errorf("100 gateways begin at %v", begun)
	}
}

func TestUrlsThatAreNoneAreRefused(t *testing.T) {
	for _, urls := range [][]string{nil, {""}, {"http://a", "127.0.0.1:8780"}, {"ftp://a"}} {
		if _, err := New(urls, nil); err == nil {
			t.Errorf("%q are taken", urls)
		}
	}
}

package share

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// net is a bus that loses what it is told to lose.
type net struct {
	mu     sync.Mutex
	subs   map[string][]func([]byte)
	serves map[string][]func([]byte) []byte
	lose   func(message []byte) bool
	asked  []string
	old    bool // nobody says what is in a snapshot, as in an earlier version
}

func newNet() *net {
	return &net{subs: map[string][]func([]byte){}, serves: map[string][]func([]byte) []byte{}}
}

// losing sets what is lost from now on.
func (n *net) losing(lose func(message []byte) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose = lose
}

func (n *net) Publish(subject string, data []byte) error {
	n.mu.Lock()
	lost, subs := n.lose != nil && n.lose(data), slices.Clone(n.subs[subject])
	n.mu.Unlock()
	if !lost {
		for _, f := range subs {
			f(slices.Clone(data))
		}
	}
	return nil
}

func (n *net) Subscribe(subject string, f func([]byte)) (func(), error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.subs[subject] = append(n.subs[subject], f)
	at := len(n.subs[subject]) - 1
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.subs[subject][at] = func([]byte) {}
	}, nil
}

func (n *net) Serve(subject string, f func([]byte) []byte) (func(), error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := len(n.serves[subject])
	n.serves[subject] = append(n.serves[subject], f)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.serves[subject][at] = nil
	}, nil
}

func (n *net) Request(_ context.Context, subject string, data []byte) ([]byte, error) {
	n.mu.Lock()
	var f func([]byte) []byte // the first to answer
	for _, g := range slices.Backward(n.serves[subject]) {
		if g != nil {
			f = g
		}
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(subject, "share."), ".")
	n.asked = append(n.asked, name)
	if n.old && name == "heard" {
		f = nil
	}
	n.mu.Unlock()
	if f == nil {
		return nil, errors.New("nobody")
	}
	return f(data), nil
}

// replica holds what it was told: its index is the set of payloads.
type replica struct {
	*Share
	mu    sync.Mutex
	holds []string
	end   func()
}

func (r *replica) apply(_ Kind, payload []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds = append(r.holds, string(payload))
}

// tell is a gateway's report: this replica takes it in and tells the others.
func (r *replica) tell(text string) {
	r.apply(Batch, []byte(text))
	r.Tell(Batch, []byte(text))
}

func (r *replica) sorted() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(r.holds))), " ")
}

// join starts a replica on the net.
func join(n *net, nonce uint64) *replica {
	r := &replica{}
	r.Share = New(Config{
		Bus: n, Self: nonce, Apply: r.apply, Log: slog.New(slog.DiscardHandler), FindFor: 300 * time.Millisecond,
		Snapshot: func() []byte { return []byte(r.sorted()) },
		Merge: func(snapshot []byte) (added int, err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			known := map[string]bool{}
			for _, text := range r.holds {
				known[text] = true
			}
			for text := range strings.FieldsSeq(string(snapshot)) {
				if !known[text] {
					r.holds = append(r.holds, text)
					added++
				}
			}
			return added, nil
		},
		Table: func() (int, uint64) { t := r.sorted(); return len(strings.Fields(t)), uint64(len(t)) },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Run(ctx)
	}()
	r.end = func() { cancel(); <-done }
	return r
}

func same(t *testing.T, want string, replicas ...*replica) {
	t.Helper()
	for _, r := range replicas {
		if got := r.sorted(); got != want {
			t.Errorf("replica %x holds %q, want %q; %+v", r.cfg.Self, got, want, r.Stats(time.Now()))
		}
	}
}

// carries tells whether a message has a payload.
func carries(message []byte, payload string) bool { return string(message[headerBytes:]) == payload }

func TestWhatOneReplicaHearsAllKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet()
		a, b, c := join(n, 1), join(n, 2), join(n, 3)
		time.Sleep(time.Second)
		a.tell("a1")
		b.tell("b1")
		a.tell("a2")
		c.tell("c1")
		time.Sleep(2 * time.Second)
		same(t, "a1 a2 b1 c1", a, b, c)
		s := a.Stats(time.Now())
		if s.Received != 2 || s.Sent != 2 || s.Again+s.Lost+s.Repeated+s.Merges != 0 || len(s.Peers) != 2 || !s.Peers[0].Same {
			t.Errorf("%+v", s)
		}
		a.end()
		b.end()
		c.end()
	})
}

// TestATableThatHasGoneOnIsStillTheSame as another was when that said so: under
// traffic a table is another one many times a second.
func TestATableThatHasGoneOnIsStillTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet()
		a, b := join(n, 1), join(n, 2)
		a.tell("1")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		is := func(want bool) {
			t.Helper()
			if peers := b.Stats(time.Now()).Peers; len(peers) != 1 || peers[0].Same != want {
				t.Errorf("%+v, want %v", peers, want)
			}
		}
		b.apply(Batch, []byte("2")) // and it hasn't reached the other yet
		is(true)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		is(false)
		a.apply(Batch, []byte("2"))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		is(true)
		a.end()
		b.end()
	})
}

func TestALostMessageIsAskedForAndComesInItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet()
		a, b := join(n, 1), join(n, 2)
		time.Sleep(time.Second)
		n.losing(func(m []byte) bool { return carries(m, "2") || carries(m, "3") || carries(m, "5") })
		for i := range 5 {
			a.tell(fmt.Sprint(i + 1))
		}
		synctest.Wait()
		b.mu.Lock()
		if got := strings.Join(b.holds, " "); got != "1 2 3 4" {
			t.Errorf("before the next position: %q", got)
		}
		b.mu.Unlock()
		time.Sleep(2 * time.Second) // a's position tells of the last one
		synctest.Wait()
		if got := strings.Join(b.holds, " "); got != "1 2 3 4 5" {
			t.Errorf("after it: %q", got)
		}
		if s := b.Stats(time.Now()); s.Again != 3 || s.Lost != 0 || s.Merges != 0 {
			t.Errorf("%+v", s)
		}
		a.end()
		b.end()
	})
}

func TestWhatNobodyHasAnyMoreIsCountedAndTheIndexMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet()
		a, b := join(n, 1), join(n, 2)
		time.Sleep(healEvery)
		n.losing(func(m []byte) bool { return true }) // the way between them is cut
		for i := range keptMessages + 100 {
			a.tell(fmt.Sprint(i))
		}
		n.losing(nil)
		time.Sleep(healEvery + 2*time.Second)
		same(t, a.sorted(), b)
		if s := b.Stats(time.Now()); s.Lost != 100 || s.Again != keptMessages || s.Merges != 1 || s.Merged != 100 {
			t.Errorf("%+v", s)
		}
		a.end()
		b.end()
	})
}

func TestAReplicaThatStartsHasWhatTheOthersHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet()
		a, b := join(n, 1), join(n, 2)
		time.Sleep(time.Second)
		for i := range 10_000 {
			a.tell(fmt.Sprint("a", i))
			b.tell(fmt.Sprint("b", i))
			if i%1000 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		c := join(n, 3)
		<-c.Found()
		same(t, a.sorted(), b, c)
		a.tell("later")
		b.tell("later-too")
		time.Sleep(2 * healEvery)
		same(t, a.sorted(), b, c)
		if s := c.Stats(time.Now()); s.Merges != 1 || s.Lost != 0 || s.Again != 0 || s.Received != 2 {
			t.Errorf("%+v", s)
		}
		if i := slices.Index(n.asked, "models"); i < 0 {
			t.Error("no snapshot was asked for: the test tests nothing")
		}
		a.end()
		b.end()
		c.end()
	})
}

// TestAReplicaThatStartsMissesNothingBetweenASnapshotAndItsPosition: the snapshot
// that it gets was made for another one, seconds ago.
func TestAReplicaThatStartsMissesNothingBetweenASnapshotAndItsPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet()
		a := join(n, 1)
		time.Sleep(time.Second)
		a.tell("1")
		b := join(n, 2)
		<-b.Found()
		a.tell("2")
		c := join(n, 3)
		<-c.Found()
		a.tell("3")
		time.Sleep(2 * time.Second)
		same(t, "1 2 3", a, b, c)
		if got := len(slices.DeleteFunc(slices.Clone(n.asked), func(s string) bool { return s != "models" })); got != 2 || c.Stats(time.Now()).Merges != 1 {
			t.Errorf("%d snapshots were asked for, %+v", got, c.Stats(time.Now()))
		}
		for _, r := range []*replica{a, b, c} {
			r.end()
		}
	})
}

// TestAReplicaThatStartsHearsOfWhomItsSourceDoesNotKnow: all start together, and
// one merges the index of another that has not heard of the third yet.
func TestAReplicaThatStartsHearsOfWhomItsSourceDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet()
		a := join(n, 1)
		time.Sleep(time.Second)
		a.tell("a1")
		n.losing(func([]byte) bool { return true })
		b := join(n, 2)
		b.tell("b1")
		time.Sleep(100 * time.Millisecond)
		c := join(n, 3) // of a, the first to answer
		<-c.Found()
		n.losing(nil)
		time.Sleep(3 * time.Second)
		same(t, "a1 b1", a, b, c)
		for _, r := range []*replica{a, b, c} {
			r.end()
		}
	})
}

// TestAReplicaThatStartsBesideOneThatHoldsNothingLosesNothing: it has said much, as
// of idle gateways, and has not kept all of it.
func TestAReplicaThatStartsBesideOneThatHoldsNothingLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet()
		a := join(n, 1)
		time.Sleep(time.Second)
		for range keptMessages + 1000 {
			a.Tell(Heartbeat, []byte("beat"))
		}
		b := join(n, 2)
		<-b.Found()
		for range 100 {
			a.Tell(Heartbeat, []byte("beat"))
		}
		time.Sleep(2 * healEvery)
		if s := b.Stats(time.Now()); s.Lost+s.Merges != 0 || s.Received < 100 {
			t.Errorf("%+v", s)
		}
		a.end()
		b.end()
	})
}

// TestAReplicaThatStartsBesideOnesOfAnEarlierVersion doesn't learn what is in their
// snapshot, and hears them from where they are.
func TestAReplicaThatStartsBesideOnesOfAnEarlierVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet()
		n.old = true
		a, b := join(n, 1), join(n, 2)
		time.Sleep(time.Second)
		a.tell("a1")
		b.tell("b1")
		time.Sleep(2 * freshSnapshot)
		c := join(n, 3)
		<-c.Found()
		a.tell("a2")
		b.tell("b2")
		time.Sleep(2 * time.Second)
		same(t, "a1 a2 b1 b2", a, b, c)
		if s := c.Stats(time.Now()); s.Merges != 1 || s.Again != 0 || s.Lost != 0 || s.Received != 2 {
			t.Errorf("%+v", s)
		}
		for _, r := range []*replica{a, b, c} {
			r.end()
		}
	})
}

func TestTheFirstReplicaDoesNotWaitLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := join(newNet(), 1)
		<-r.Found()
		if waited := time.Since(began); waited > 500*time.Millisecond {
			t.Errorf("looked for others for %v", waited)
		}
		r.end()
	})
}

func TestAReplicaThatIsGoneIsForgottenAndItsSuccessorHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet()
		a, b := join(n, 1), join(n, 2)
		time.Sleep(time.Second)
		a.tell("before")
		synctest.Wait()
		a.end()
		time.Sleep(2 * silentFor)
		if s := b.Stats(time.Now()); len(s.Peers) != 0 {
			t.Errorf("%+v", s.Peers)
		}
		again := join(n, 9) // the same one after a restart
		<-again.Found()
		again.tell("after")
		time.Sleep(2 * time.Second)
		same(t, "after before", again, b)
		again.end()
		b.end()
	})
}

func TestMessagesThatAreNoneAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet()
		r := join(n, 1)
		<-r.Found()
		good := appendHeader(nil, &header{Batch, 2, 1})
		zero := appendHeader(nil, &header{Batch, 2, 0})
		for _, m := range [][]byte{nil, []byte("WPS"), good[:headerBytes-1], zero, appendHeader(nil, &header{9, 2, 1}), appendHeader(nil, &header{position, 2, 1})} {
			_ = n.Publish(everybody, m)
		}
		_ = n.Publish(everybody, good)
		synctest.Wait()
		if s := r.Stats(time.Now()); s.Bad != 6 || s.Received != 1 {
			t.Errorf("%+v", s)
		}
		for _, req := range [][]byte{nil, {1}, make([]byte, 9)} {
			if got := r.serveAgain(req); len(got) != 0 {
				t.Errorf("%v is answered", req)
			}
		}
		r.end()
	})
}

func FuzzMessages(f *testing.F) {
	f.Add(appendHeader(nil, &header{Batch, 2, 1}))
	f.Add(appendPosition(nil, 2, 5, 100, 7))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, payload, err := decode(b)
		if err != nil {
			return
		}
		if h.kind == position {
			decodePosition(payload)
		}
		if again := append(appendHeader(nil, &h), payload...); len(again) != len(b) || binary.LittleEndian.Uint64(again[16:]) != h.sequence {
			t.Errorf("%x became %x", b, again)
		}
	})
}

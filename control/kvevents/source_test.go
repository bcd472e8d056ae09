package kvevents

import (
	"bytes"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// prompt is a batch that stores blocks 4 i + 1 to 4 i + 4.
func prompt(ts float64, i int) []byte {
	e := Event{Kind: Stored, BlockSize: 16}
	for k := range 4 {
		e.Hashes = append(e.Hashes, uint64(4*i+k+1))
	}
	for k := range 64 {
		e.Tokens = append(e.Tokens, uint32(1000*i+k))
	}
	return encode(ts, e)
}

func removal(ts float64, hashes ...uint64) []byte {
	return encode(ts, Event{Kind: Removed, Hashes: hashes})
}

func TestARecordedEngineIsFollowedFromItsBeginning(t *testing.T) {
	for _, withTopic := range []bool{true, false} {
		e := newEngine(t)
		e.withTopic = withTopic
		names := recorded(t, "evict/*.bin")
		for _, name := range names[:8] {
			e.publish(payload(t, name), true) // before anybody listened
		}
		held := newLedger()
		s, told := follow(t, e, e.endpoint(), held)
		until(t, s, told, "the replay", func(st SourceStatus) bool { return st.Next == 8 })
		for i, name := range names[8:] {
			e.publish(payload(t, name), i == 3) // one is lost on the way
		}
		st := until(t, s, told, "all", func(st SourceStatus) bool { return st.Next == 17 })
		if st.Map.Blocks != 4 || st.Lost+st.Missed+st.Bad != 0 || st.Gaps != 1 || st.Batches != 17 || st.Problem != "" || !st.Connected {
			t.Errorf("%+v", st)
		}
		if len(held.held) != 2 || held.bad != "" {
			t.Error(len(held.held), held.bad)
		}
	}
}

func TestABrokenConnectionIsMadeAgainAndNothingIsLost(t *testing.T) {
	e := newEngine(t)
	s, told := follow(t, e, e.endpoint(), newLedger())
	e.publish(prompt(1, 0), false)
	until(t, s, told, "the first", func(st SourceStatus) bool { return st.Next == 1 })
	e.disconnect()
	e.publish(prompt(2, 1), true)
	<-e.joined
	st := until(t, s, told, "the second", func(st SourceStatus) bool { return st.Next == 2 })
	if st.Map.Held != 8 || st.Reconnects != 1 || st.Restarts+st.Lost != 0 {
		t.Errorf("%+v", st)
	}
}

func TestAnotherProcessBeginsWithAnEmptyCache(t *testing.T) {
	for name, published := range map[string]int{"fewer batches": 1, "as many": 2, "more": 4} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			held := newLedger()
			s, told := follow(t, e, e.endpoint(), held)
			e.publish(prompt(1, 0), false)
			e.publish(prompt(2, 1), false)
			until(t, s, told, "two prompts", func(st SourceStatus) bool { return st.Next == 2 })
			e.restart()
			e.disconnect()
			for i := range published {
				e.publish(prompt(10+float64(i), 10+i), true)
			}
			<-e.joined
			st := until(t, s, told, "the new process", func(st SourceStatus) bool { return st.Restarts == 1 && st.Next == uint64(published) })
			if st.Map.Held != 4*published || len(held.held) != published || st.Lost != 0 {
				t.Errorf("%+v, %d held", st, len(held.held))
			}
		})
	}
}

func TestWithoutReplayGapsAreToldAndTheStreamGoesOn(t *testing.T) {
	e := newEngine(t)
	endpoint := e.endpoint()
	endpoint.Replay = ""
	s, told := follow(t, e, endpoint, newLedger())
	e.publish(prompt(1, 0), false)
	e.publish(removal(2, 4), true)
	e.publish(prompt(3, 1), false)
	st := until(t, s, told, "the third", func(st SourceStatus) bool { return st.Next == 3 })
	if st.Lost != 1 || st.Gaps != 1 || st.Map.Held != 8 || st.Problem == "" {
		t.Errorf("%+v", st)
	}
	e.publish(encode(4, Event{Kind: Cleared}), false)
	st = until(t, s, told, "the clear", func(st SourceStatus) bool { return st.Next == 4 })
	if st.Map.Blocks != 0 || st.Problem != "" {
		t.Errorf("nothing is unsure about an empty cache: %+v", st)
	}
}

func TestWhatIsOutOfTheReplaysReachIsCounted(t *testing.T) {
	e := newEngine(t)
	for i := range 3 {
		e.publish(prompt(float64(i+1), i), true)
	}
	e.buffer[0], e.buffer[1] = nil, nil
	s, told := follow(t, e, e.endpoint(), newLedger())
	e.publish([]byte("\x93nonsense"), false)
	e.publish(prompt(9, 9), false)
	st := until(t, s, told, "all", func(st SourceStatus) bool { return st.Next == 5 })
	if st.Missed != 2 || st.Bad != 1 || st.Lost != 1 || st.Map.Held != 8 || st.Problem == "" {
		t.Errorf("%+v", st)
	}
}

func TestALateReplayNeverBringsBackWhatWasRemoved(t *testing.T) {
	held := newLedger()
	s := stream{m: NewMap(Config{Pool: "pool"}, held)}
	first := prompt(1, 0)
	for seq, b := range [][]byte{first, removal(2, 4, 3, 2, 1)} {
		if v, err := s.take(uint64(seq), b, false); v != applied || err != nil {
			t.Fatal(v, err)
		}
	}
	for _, final := range []bool{false, true} {
		if v, _ := s.take(0, first, final); v != duplicate || len(held.held) != 0 {
			t.Errorf("verdict %d, %d held", v, len(held.held))
		}
	}
	// The same number from a younger clock is another process.
	if v, _ := s.take(0, prompt(3, 0), false); v != applied || len(held.held) != 1 || s.counts.Restarts != 1 {
		t.Errorf("verdict %d, %d held, %+v", v, len(held.held), s.counts)
	}
	if v, _ := s.take(5, prompt(4, 1), false); v != gap || s.next != 1 {
		t.Errorf("verdict %d, next %d", v, s.next)
	}
}

func TestAPeerThatIsNoEngineIsRefused(t *testing.T) {
	for name, sent := range map[string][]byte{
		"a frame of 2^63 bytes and more": {2, 0xff, 0, 0, 0, 0, 0, 0, 0},
		"a message without an end":       bytes.Repeat(append([]byte{3, 0, 0, 0, 0, 0, 16, 0, 0}, make([]byte, 1<<20)...), 40),
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			endpoint := e.endpoint()
			endpoint.Replay = ""
			s, told := follow(t, e, endpoint, newLedger())
			e.mu.Lock()
			_, _ = e.conns[0].Write(sent) // it may be cut off before all is written
			e.mu.Unlock()
			<-e.joined // again
			e.publish(prompt(1, 0), false)
			if st := until(t, s, told, "the batch after", func(st SourceStatus) bool { return st.Next == 1 }); st.Reconnects != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestSourcesAreFoundByAsking(t *testing.T) {
	body, err := os.ReadFile("testdata/dp2/kv_event_sources.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseSources(body, "10.0.0.7:8000")
	want := []Endpoint{
		{"tcp://10.0.0.7:15597", "tcp://10.0.0.7:16597", "kv@127.0.0.1:18004@tiny", 0},
		{"tcp://10.0.0.7:15598", "tcp://10.0.0.7:16598", "kv@127.0.0.1:18004@tiny", 1},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if body, err = os.ReadFile("testdata/main/kv_event_sources.json"); err != nil {
		t.Fatal(err)
	}
	got, err = parseSources(body, "[fd00::7]:8000")
	want = []Endpoint{{"tcp://[fd00::7]:15557", "tcp://[fd00::7]:16557", "kv@127.0.0.1:18000@tiny", 0}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	for _, bad := range []string{`{"-1":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://h:1"}}`, `{}`, `[]`, `{"0":{"enable_kv_cache_events":false}}`, `{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"ipc:///tmp/x"}}`, `{"x":{"enable_kv_cache_events":true}}`} {
		if got, err := parseSources([]byte(bad), "[fd00::7]:8000"); err == nil {
			t.Errorf("%s: %v", bad, got)
		}
	}
	if got, err := Reachable("tcp://[::]:1", "fd00::7"); got != "tcp://[fd00::7]:1" || err != nil {
		t.Error(got, err)
	}
}

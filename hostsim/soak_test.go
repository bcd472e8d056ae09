package hostsim

import (
	"strings"
	"sync"
	"testing"
	"time"
)

func TestHundredsOfReconfigurationsLeaveNothingBehind(t *testing.T) {
	h := newTestHost(t, Options{Log: func(LogEntry) {}})
	script := "tick: silent\nconfigure: tick 1000\n# " + strings.Repeat("x", 64<<10)
	vm, p := startGuest(t, h, VMConfig{Name: "w"}, PluginConfig{Configuration: []byte(script)})
	var settled uint64
	for i := range 300 {
		if err := p.Reconfigure(PluginConfig{Configuration: []byte(script)}); err != nil {
			t.Fatal(err)
		}
		s := p.NewStream(&Recorder{})
		s.RequestHeaders(postHeaders(), false)
		s.RequestData(make([]byte, 4096), true)
		s.Close()
		h.Advance(10 * time.Millisecond)
		if i == 100 {
			settled = vm.Stats().MemoryBytes
		}
	}
	if n := len(vm.inst.contexts); n != 1 {
		t.Errorf("%d contexts left, want the one in force", n)
	}
	if n := len(p.roots); n != 1 {
		t.Errorf("%d root contexts left", n)
	}
	if got := vm.Stats().MemoryBytes; got > settled*3/2 {
		t.Errorf("the VM grew from %d to %d bytes between the 100th and the 300th configuration", settled, got)
	}
}

// TestATrapOnTheRealClockEndsItsStreamsAndTheVMServesOn lets several goroutines
// share a VM that traps now and then: no stream hangs, the VM comes back.
func TestATrapOnTheRealClockEndsItsStreamsAndTheVMServesOn(t *testing.T) {
	h := newTestHost(t, Options{Clock: RealClock(), Log: func(LogEntry) {}, LogLevel: LogCritical})
	vm, holding := startGuest(t, h, VMConfig{Name: "w", EndStreamsOnTrap: true}, PluginConfig{
		Name: "holding", Configuration: []byte("request_headers: pause\ntick: silent\nconfigure: tick 1"),
	})
	var trapping *Plugin
	vm.Do(func() {
		var err error
		trapping, err = vm.AddPlugin(PluginConfig{Name: "trapping", Configuration: []byte("request_body: trap")})
		if err != nil {
			t.Error(err)
		}
	})
	const rounds = 5
	var wg sync.WaitGroup
	ended := make(chan struct{}, 1024)
	for range 3 {
		wg.Go(func() {
			for range rounds {
				vm.Do(func() {
					holding.NewStream(&endSink{ended: ended}).RequestHeaders(postHeaders(), true)
				})
			}
		})
	}
	wg.Go(func() {
		for range rounds {
			vm.Do(func() {
				s := trapping.NewStream(&endSink{ended: ended})
				s.RequestHeaders(postHeaders(), false)
				s.RequestData([]byte("x"), true)
			})
		}
	})
	wg.Wait()
	vm.Do(func() {
		// One more trap ends whatever was opened after the last.
		s := trapping.NewStream(&endSink{ended: ended})
		s.RequestHeaders(postHeaders(), false)
		s.RequestData([]byte("x"), true)
	})
	if got, want := len(ended), 4*rounds+1; got != want {
		t.Errorf("%d of %d streams were ended", got, want)
	}
	vm.Do(func() {
		sink := &Recorder{}
		s := holding.NewStream(sink)
		s.RequestHeaders(postHeaders(), true)
		if held, _ := s.RequestHeld(); !held {
			t.Errorf("the reloaded VM does not hold: %q", sink.Lines)
		}
	})
	st := vm.Stats()
	if st.Traps != rounds+1 || st.Reloads != rounds+1 || st.ActiveStreams != 1 || vm.Failed() {
		t.Errorf("stats %+v, failed %t", st, vm.Failed())
	}
	vm.Do(vm.Close)
}

// endSink tells when the stream is answered or cut.
type endSink struct {
	Recorder
	ended chan struct{}
}

func (s *endSink) LocalReply(LocalReply) { s.ended <- struct{}{} }
func (s *endSink) Reset(string)          { s.ended <- struct{}{} }

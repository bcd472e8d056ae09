package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"github.com/warmpath/warmpath/control/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var workersZone = map[string][]string{
	"workers.test. A":         {"workers.test. 30 IN A 10.0.0.2", "workers.test. 20 IN A 10.0.0.1"},
	"workers.test. AAAA":      {"workers.test. 40 IN AAAA fd00::1"},
	"alias.test. A":           {"alias.test. 5 IN CNAME workers.test.", "workers.test. 30 IN A 10.0.0.1"},
	"alias.test. AAAA":        {"alias.test. 5 IN CNAME workers.test."},
	"v6.test. AAAA":           {"v6.test. 50 IN AAAA fd00::2"},
	"empty.test. TXT":         {`empty.test. 60 IN TXT "nothing else"`},
	"_http._tcp.w.test. SRV":  {"_http._tcp.w.test. 60 IN SRV 10 1 8001 one.test.", "_http._tcp.w.test. 60 IN SRV 10 9 8002 one.test.", "_http._tcp.w.test. 60 IN SRV 20 1 8000 spare.test.", "_http._tcp.w.test. 60 IN SRV 10 1 8000 gone.test."},
	"one.test. A":             {"one.test. 15 IN A 10.0.1.1"},
	"spare.test. A":           {"spare.test. 15 IN A 10.0.1.9"},
	"_http._tcp.no.test. SRV": {"_http._tcp.no.test. 60 IN SRV 0 0 0 ."},
}

func resolveAt(t *testing.T, s *server, cfg discovery.DNS) (answer, error) {
	t.Helper()
	cfg.Server = s.addr
	cfg.Timeout = 200 * time.Millisecond
	source, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return source.resolver.resolve(t.Context())
}

func TestANameGivesItsAddressesAndHowLongToBelieveThem(t *testing.T) {
	s := startServer(t, workersZone)
	for _, c := range []struct {
		cfg     discovery.DNS
		want    string
		ttl     time.Duration
		why     string
		skipped int
	}{
		{cfg: discovery.DNS{Name: "workers.test", Port: 8000}, want: "10.0.0.1:8000 10.0.0.2:8000 [fd00::1]:8000", ttl: 20 * time.Second},
		{cfg: discovery.DNS{Name: "alias.test", Port: 8000}, want: "10.0.0.1:8000", ttl: 5 * time.Second},
		{cfg: discovery.DNS{Name: "v6.test", Port: 1}, want: "[fd00::2]:1", ttl: 50 * time.Second},
		{cfg: discovery.DNS{Name: "empty.test", Port: 1}, ttl: 7 * time.Second, why: "empty.test has no AAAA record"},
		{cfg: discovery.DNS{Name: "absent.test", Port: 1}, ttl: 7 * time.Second, why: "there is no name absent.test (NXDOMAIN)"},
		{cfg: discovery.DNS{SRV: "_http._tcp.w.test"}, want: "10.0.1.1:8001 10.0.1.1:8002", ttl: 7 * time.Second, skipped: 1},
		{cfg: discovery.DNS{SRV: "_http._tcp.no.test"}, ttl: time.Minute, why: "_http._tcp.no.test has no SRV record"},
		{cfg: discovery.DNS{SRV: "_http._tcp.absent.test"}, ttl: 7 * time.Second, why: "there is no name _http._tcp.absent.test (NXDOMAIN)"},
	} {
		a, err := resolveAt(t, s, c.cfg)
		var got []string
		for _, at := range a.at {
			got = append(got, at.String())
		}
		if err != nil || strings.Join(got, " ") != c.want || a.ttl != c.ttl || a.why != c.why || len(a.skipped) != c.skipped {
			t.Errorf("%v: %v for %v, why %q, skipped %v, %v", c.cfg, got, a.ttl, a.why, a.skipped, err)
		}
	}
}

func TestAnAnswerThatIsCutIsAskedForOverTCP(t *testing.T) {
	zone := map[string][]string{}
	for i := range 200 {
		zone["many.test. A"] = append(zone["many.test. A"], fmt.Sprintf("many.test. 9 IN A 10.1.0.%d", i))
	}
	s := startServer(t, zone)
	s.set(func(s *server) { s.cut = true })
	if a, err := resolveAt(t, s, discovery.DNS{Name: "many.test", Port: 8000}); err != nil || len(a.at) != 200 {
		t.Errorf("%d addresses, %v", len(a.at), err)
	}
}

func TestWhenOneServerFailsTheNextIsAsked(t *testing.T) {
	good, bad := startServer(t, workersZone), startServer(t, nil)
	bad.set(func(s *server) { s.rcode = dns.RcodeServerFailure })
	source, err := New(discovery.DNS{Name: "v6.test", Port: 1, Server: good.addr})
	if err != nil {
		t.Fatal(err)
	}
	source.resolver.servers = []string{bad.addr, good.addr}
	if a, err := source.resolver.resolve(t.Context()); err != nil || len(a.at) != 1 {
		t.Errorf("%v %v", a, err)
	}
}

// TestAServerThatFailsHasSaidNothing: a half of an answer isn't one either.
func TestAServerThatFailsHasSaidNothing(t *testing.T) {
	for what, change := range map[string]func(*server){
		"SERVFAIL": func(s *server) { s.rcode = dns.RcodeServerFailure },
		"REFUSED":  func(s *server) { s.rcode = dns.RcodeRefused },
		"timeout":  func(s *server) { s.silent = true },
	} {
		s := startServer(t, workersZone)
		s.set(change)
		if a, err := resolveAt(t, s, discovery.DNS{Name: "workers.test", Port: 8000}); err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), s.addr) {
			t.Errorf("%s: %v %v", what, a, err)
		}
	}
}

func TestTheSameFailureReadsTheSame(t *testing.T) {
	gone, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := gone.LocalAddr().String()
	_ = gone.Close()
	source, err := New(discovery.DNS{Name: "w.test", Port: 1, Server: addr})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		want := "A w.test at " + addr + ": read: connection refused"
		if _, err := source.resolver.resolve(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestTheSearchListIsUsed(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver 10.9.9.9\nsearch absent.test test\noptions ndots:3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, workersZone)
	source, err := New(discovery.DNS{Name: "workers", Port: 8000, ResolvConf: conf})
	if err != nil {
		t.Fatal(err)
	}
	if got := source.resolver.servers; !slices.Equal(got, []string{"10.9.9.9:53"}) {
		t.Errorf("servers %v", got)
	}
	source.resolver.servers = []string{s.addr}
	if a, err := source.resolver.resolve(t.Context()); err != nil || len(a.at) != 3 {
		t.Errorf("%v %v", a, err)
	}
	for _, bad := range []discovery.DNS{
		{Name: "w", Port: 1, ResolvConf: filepath.Join(t.TempDir(), "none")},
		{Name: "w", Port: 1, Server: "ns.test"},
		{Name: "w"},
		{SRV: "w", Port: 1},
		{Name: "w", Port: 1, Interval: time.Millisecond},
		{Name: "w", Port: 1, Template: discovery.Template{Pool: "Not a pool"}},
	} {
		if _, err := New(bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func testBook() *book {
	return &book{cfg: discovery.DNS{Name: "w.test", Port: 8000, Interval: time.Minute, MinInterval: time.Second, EmptyAfter: 30 * time.Second}.WithDefaults()}
}

func TestATTLSaysWhenToAskAgainWithinBounds(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{0: time.Second, 20 * time.Second: 20 * time.Second, time.Hour: time.Minute} {
		if _, wait := testBook().take(someAnswer("10.0.0.1:8000", ttl), nil, time.Unix(0, 0)); wait != want {
			t.Errorf("ttl %v: asked again after %v", ttl, wait)
		}
	}
}

func TestAFailureIsNoListAndIsRetriedEverMoreRarely(t *testing.T) {
	b := testBook()
	var waits []time.Duration
	for range 8 {
		f, wait := b.take(answer{}, errors.New("SERVFAIL"), time.Unix(0, 0))
		if f.Err == nil || !strings.Contains(f.Err.Error(), "the last list holds") {
			t.Fatalf("%+v", f)
		}
		waits = append(waits, wait)
	}
	if want := []float64{1, 2, 4, 8, 16, 32, 60, 60}; !slices.EqualFunc(waits, want, func(a time.Duration, seconds float64) bool { return a.Seconds() == seconds }) {
		t.Errorf("waits %v", waits)
	}
	b.take(someAnswer("10.0.0.1:8000", 0), nil, time.Unix(0, 0))
	if _, wait := b.take(answer{}, errors.New("SERVFAIL"), time.Unix(0, 0)); wait != time.Second {
		t.Errorf("after a success: %v", wait)
	}
}

func TestThatThereIsNobodyIsBelievedOnlyWhenItStaysSo(t *testing.T) {
	b := testBook()
	empty := answer{why: "there is no name w.test (NXDOMAIN)", ttl: 7 * time.Second}
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	if f, _ := b.take(someAnswer("10.0.0.1:8000", 0), nil, at(0)); len(f.Workers) != 1 || f.Err != nil {
		t.Fatalf("%+v", f)
	}
	for _, c := range []struct {
		second   int
		believed bool
		wait     time.Duration
	}{{1, false, 7 * time.Second}, {29, false, 2 * time.Second}, {31, true, 7 * time.Second}, {60, true, 7 * time.Second}} {
		f, wait := b.take(empty, nil, at(c.second))
		if (f.Err == nil) != c.believed || len(f.Workers) != 0 || wait != c.wait {
			t.Errorf("second %d: %+v, asked again after %v", c.second, f, wait)
		}
	}
	// Somebody in between, and the time starts anew.
	b.take(someAnswer("10.0.0.1:8000", 0), nil, at(61))
	if f, _ := b.take(empty, nil, at(62)); f.Err == nil {
		t.Errorf("believed at once: %+v", f)
	}
}

func TestWhatCannotBeAWorkerIsLeftOutAndNamed(t *testing.T) {
	a := someAnswer("10.0.0.1:8000 10.0.0.1:8000 0.0.0.0:8000 224.0.0.1:8000", 0)
	f, _ := testBook().take(a, nil, time.Unix(0, 0))
	if len(f.Workers) != 1 || len(f.Skipped) != 2 || f.Err != nil {
		t.Errorf("%+v", f)
	}
}

// TestAListFollowsTheZone runs the whole source against the server.
func TestAListFollowsTheZone(t *testing.T) {
	s := startServer(t, workersZone)
	source, err := New(discovery.DNS{
		Name: "workers.test", Port: 8000, Server: s.addr, Interval: 100 * time.Millisecond, MinInterval: 50 * time.Millisecond, EmptyAfter: 150 * time.Millisecond,
		Timeout: 100 * time.Millisecond, Template: discovery.Template{Pool: "chat", KVEvents: discovery.KVEvents{Endpoint: "tcp://*:5557"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	found, done := make(chan discovery.Finding), make(chan error)
	go func() {
		done <- source.Run(ctx, func(f discovery.Finding) {
			select {
			case found <- f:
			case <-ctx.Done():
			}
		})
	}()
	await := func(what string, ok func(discovery.Finding) bool) discovery.Finding {
		t.Helper()
		deadline := time.After(10 * time.Second)
		for {
			select {
			case f := <-found:
				if ok(f) {
					return f
				}
			case <-deadline:
				t.Fatal("never:", what)
			}
		}
	}
	lists := discovery.NewLists(source.Name())
	f := await("three", func(f discovery.Finding) bool { return len(f.Workers) == 3 })
	if w := f.Workers[2]; w.Address != "[fd00::1]:8000" || w.Pool != "chat" || w.KVEvents.Endpoint != "tcp://[fd00::1]:5557" {
		t.Errorf("%+v", w)
	}
	if joined, changed, err := lists.Tell(source.Name(), f, time.Now()); err != nil || !changed || len(joined) != 3 {
		t.Errorf("%v %v %v", joined, changed, err)
	}
	s.set(func(s *server) { s.silent = true })
	f = await("a failure", func(f discovery.Finding) bool { return f.Err != nil })
	if joined, changed, err := lists.Tell(source.Name(), f, time.Now()); err != nil || changed || joined != nil {
		t.Errorf("a failure changed the list: %v %v %v", joined, changed, err)
	}
	if st := lists.Status()[0]; st.Workers != 3 || st.Err == nil {
		t.Errorf("%+v", st)
	}
	s.set(func(s *server) {
		s.silent, s.zone = false, map[string][]string{"workers.test. A": {"workers.test. 1 IN A 10.0.0.7"}}
	})
	await("one", func(f discovery.Finding) bool { return len(f.Workers) == 1 && f.Workers[0].Address == "10.0.0.7:8000" })
	s.set(func(s *server) { s.zone = nil })
	await("doubt", func(f discovery.Finding) bool { return f.Err != nil && strings.Contains(f.Err.Error(), "NXDOMAIN") })
	await("nobody", func(f discovery.Finding) bool { return f.Err == nil && len(f.Workers) == 0 })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func someAnswer(addresses string, ttl time.Duration) answer {
	a := answer{ttl: ttl}
	for _, text := range strings.Fields(addresses) {
		a.at = append(a.at, netip.MustParseAddrPort(text))
	}
	return a
}

package control

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/shared/fingerprint"
)

// book is a log that tests may read while it is written.
type book struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *book) has(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(b.text.String(), text)
}

// An engine without a replay socket stores two prompts and then is silent, while
// the control service restarts again and again.
func TestWhatAnEngineToldLongAgoIsKnownAfterARestart(t *testing.T) {
	dir := t.TempDir()
	path, hash := wpv(t, dir, "a.wpv", "Hello", "lo")
	p := newPublisher(t)
	_, port, _ := strings.Cut(p.listener.Addr().String(), ":")
	list := specs(alpha)
	list[0].KVEvents = discovery.KVEvents{Auto: true}
	log := &book{}
	cfg := Config{
		Workers: list, Learn: -1, StateFile: filepath.Join(dir, "state"), Logger: slog.New(slog.NewTextHandler(log, nil)),
		Policy: fmt.Appendf(nil, "pools:\n- {name: default, models: [tiny], tokenizer: {file: %q, template: chatml, engine: sglang, parity: off}}\n", path),
	}
	transport := announcing{newEngines(alpha), fmt.Sprintf(`{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://127.0.0.1:%s","topic":"kv"}}`, port)}

	var paths [2][]fingerprint.Checkpoint
	stored := func(n int) []any {
		var tokens []uint32
		var ids, hashes []any
		for i := range 128 {
			tokens = append(tokens, uint32(1000*n+i))
			ids = append(ids, tokens[i])
			if i%16 == 0 {
				hashes = append(hashes, 100*(n+1)+i/16)
			}
		}
		var chain fingerprint.Chain
		chain.Reset(fingerprint.Salt("default", "", 0, "", fingerprint.Exact))
		chain.WriteTokens(tokens)
		paths[n] = append([]fingerprint.Checkpoint(nil), chain.Finish()...)
		return []any{"BlockStored", hashes, nil, ids, 16, nil, "GPU"}
	}
	seq := uint64(0)
	publish := func(event []any) {
		p.send(zmq4.NewMsgFrom([]byte("kv@x"), binary.BigEndian.AppendUint64(nil, seq), eventBatch(float64(seq+1), event)))
		seq++
	}
	var b *bench
	var g *gateway
	begin := func() {
		b = serveOn(t, transport, cfg)
		<-b.s.Ready()
		g = b.gateway("g")
		g.catchUp()
	}
	wait := func(what string, ok func(w *api.Worker) bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; {
			w := b.worker(alpha)
			if w.Events != nil && ok(&w) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("not within 20 s: %s; %+v of %+v", what, w.Events, w)
			}
			g.report(hash, 1)
			g.poll(50 * time.Millisecond)
		}
	}
	held := func(n int) (count int) {
		for _, c := range paths[n] {
			count += len(g.holders(c.Fingerprint))
		}
		return count
	}
	connected := func(w *api.Worker) bool { return w.Events.Source == "connected" }

	begin()
	wait("a connection", connected)
	<-p.joined // else the engine may not know of the subscription yet
	publish(stored(0))
	publish(stored(1))
	wait("two prompts", func(*api.Worker) bool { return held(0)+held(1) == 4 })
	b.stop()

	if saved := b.s.Status().Saved; saved.Age < 0 || saved.Age > 60 || saved.Bytes < 300 || saved.Error != "" {
		t.Errorf("%+v", saved)
	}

	begin()
	wait("the restored map", func(w *api.Worker) bool { return connected(w) && w.Events.Held == 16 })
	if held(0)+held(1) != 4 || b.worker(alpha).Entries != 4 || b.worker(alpha).Trust != 1 {
		t.Errorf("%d and %d checkpoints in the table, %+v", held(0), held(1), b.worker(alpha))
	}
	<-p.joined
	publish([]any{"BlockRemoved", []any{200}, "GPU"})
	wait("the removal", func(*api.Worker) bool { return held(1) == 0 })
	b.stop()

	// Nothing came since: the file of before is enough. Then a batch is lost.
	begin()
	wait("what the removal left", func(w *api.Worker) bool { return connected(w) && w.Events.Held == 8 && held(0) == 2 })
	<-p.joined
	seq++
	publish([]any{"BlockRemoved", []any{207}, "GPU"})
	wait("the gap", func(w *api.Worker) bool { return w.Events.Lost == 1 })
	if w := b.worker(alpha); held(0) != 2 || w.Trust > 0.51 || w.Events.Problem == "" {
		t.Errorf("%d checkpoints, %+v", held(0), w)
	}
	b.stop()

	files, err := filepath.Glob(cfg.StateFile + ".events/*")
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2]++
	if err := os.WriteFile(files[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	begin()
	wait("a connection", connected)
	if w := b.worker(alpha); w.Events.Held != 0 || !log.has("saved KV events ignored") || !log.has("checksum doesn't match") {
		t.Errorf("%+v", w.Events)
	}
	// The engine goes on: what it stores from now on is known again.
	<-p.joined
	publish(stored(1))
	wait("a prompt", func(*api.Worker) bool { return held(1) == 2 })
}

func TestFilesOfSourcesThatNobodyFollowsGoAfterADay(t *testing.T) {
	s := &Service{cfg: Config{StateFile: filepath.Join(t.TempDir(), "state")}}
	if n, err := s.saveEvents(time.Now()); n != 0 || err != nil {
		t.Fatal("nothing to save is no error:", err)
	}
	if err := os.Mkdir(s.eventsDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for name, age := range map[string]time.Duration{"old.wpev": 25 * time.Hour, "new.wpev": time.Hour, "old.txt": 25 * time.Hour} {
		file := filepath.Join(s.eventsDir(), name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.saveEvents(now); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(s.eventsDir() + "/*")
	if len(left) != 2 || filepath.Base(left[0]) != "new.wpev" || filepath.Base(left[1]) != "old.txt" {
		t.Error(left)
	}
}

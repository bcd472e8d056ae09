package control

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/index"
	"github.com/warmpath/warmpath/control/publish"
	"github.com/warmpath/warmpath/control/vocabulary"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNobodyListensToTheWorldWithoutAToken(t *testing.T) {
	for name, c := range map[string]struct {
		cfg Config
		ok  bool
	}{
		"loopback":            {Config{Listen: "127.0.0.1:0"}, true},
		"loopback 6":          {Config{Listen: "[::1]:0"}, true},
		"everywhere":          {Config{Listen: "0.0.0.0:0"}, false},
		"everywhere 6":        {Config{Listen: "[::]:0"}, false},
		"port only":           {Config{Listen: ":0"}, false},
		"token":               {Config{Listen: "0.0.0.0:0", Token: "t"}, true},
		"insecure on purpose": {Config{Listen: "0.0.0.0:0", Insecure: true}, true},
	} {
		s, err := New(c.cfg)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if problem := (discovery.Problem{}); err != nil && (!strings.Contains(err.Error(), "token") || !errors.As(err, &problem) || problem.Remedy == "") {
			t.Errorf("%s: %v has no remedy", name, err)
		}
		if s != nil {
			s.Close()
		}
	}
}

func TestATakenAddressIsNamed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if _, err := New(Config{Listen: ln.Addr().String()}); err == nil || !strings.Contains(err.Error(), ln.Addr().String()) {
		t.Errorf("%v", err)
	}
}

func TestTheConfigFileIsReadStrictly(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := ParseConfig("control.yaml", []byte(`
listen: 127.0.0.1:0
token_file: `+token+`
workers_file: workers.yaml
read_interval: 2s
health: {path: /ping, interval_up: 2s, interval_down: 250ms, metrics_interval: 1s, timeout: 500ms, failures: 3, token: abc}
index: {max_bytes: 1000000}
table: {min_bits: 12, max_bits: 14, max_bytes: 34000000}
coalesce_interval: 10ms
loads_interval: 200ms
state_file: state
state_interval: 1m
learn: 20s
heal_after: 5m
policy:
  pools:
    - name: default
      models: ["*"]
      policy: {name: least_load}
`))
	if err != nil {
		t.Fatal(err)
	}
	if c.Token != "secret" || c.Health.Path != "/ping" || c.Health.IntervalDown != 250*time.Millisecond || c.CoalesceInterval != 10*time.Millisecond ||
		c.Publish.MinBits != 12 || c.Publish.MaxBytes != 34_000_000 || c.Index.MaxBytes != 1_000_000 || c.Learn != 20*time.Second || !strings.Contains(string(c.Policy), "least_load") {
		t.Errorf("%+v", c)
	}
	for name, x := range map[string]struct{ text, want string }{
		"unknown key":     {"lisen: 127.0.0.1:0", "line 1"},
		"unknown subkey":  {"listen: 127.0.0.1:0\nhealth:\n  pth: /x", "line 3"},
		"no unit":         {"coalesce_interval: fast", "line 1"},
		"two tokens":      {"token: a\ntoken_file: b", "token_file"},
		"two for beats":   {"heartbeat_token: a\nheartbeat_token_file: b", "heartbeat_token_file: given beside heartbeat_token"},
		"token file lost": {"token_file: " + filepath.Join(dir, "nope"), "nope"},
	} {
		if _, err := ParseConfig("control.yaml", []byte(x.text)); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := LoadConfig(filepath.Join(dir, "nope.yaml")); err == nil {
		t.Error("a missing file was read")
	}
}

func TestWhatCantWorkIsRefusedBeforeAnythingRuns(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("workers:\n- address: nowhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"table too small":     {Config{Publish: publish.Config{MaxBytes: 1000}}, "table.max_bytes"},
		"coalesce too fast":   {Config{CoalesceInterval: time.Millisecond}, "coalesce_interval"},
		"coalesce too slow":   {Config{CoalesceInterval: time.Minute}, "coalesce_interval"},
		"two lists":           {Config{Workers: specs(alpha), WorkersFile: bad}, "workers_file"},
		"two policies":        {Config{Policy: []byte("{}"), PolicyFile: bad}, "policy_file"},
		"classes swapped":     {Config{Publish: publish.Config{MinBits: 12, MaxBits: 10}}, "min_bits 12 is over"},
		"probes too often":    {Config{Health: discovery.HealthConfig{IntervalUp: time.Millisecond}}, "health.interval_up"},
		"probes never":        {Config{Health: discovery.HealthConfig{IntervalDown: -1}}, "health.interval_down"},
		"path without slash":  {Config{Health: discovery.HealthConfig{Path: "health"}}, "health.path"},
		"index too small":     {Config{Index: index.Config{MaxBytes: 5}}, "index.max_bytes"},
		"odd size class":      {Config{Publish: publish.Config{MinBits: 7}}, "min_bits"},
		"state in no folder":  {Config{StateFile: filepath.Join(bad, "state")}, "state_file"},
		"token with newline":  {Config{Token: "a\nb"}, "token"},
		"beats without token": {Config{HeartbeatToken: "a"}, "heartbeat_token"},
		"beats with newline":  {Config{Token: "t", HeartbeatToken: "a\nb"}, "heartbeat_token"},
		"bad list file":       {Config{WorkersFile: bad}, "bad.yaml:2: workers[0].address"},
		"missing list file":   {Config{WorkersFile: bad + "x"}, "bad.yamlx"},
		"bad list":            {Config{Workers: []discovery.Spec{{Address: "x"}}}, "workers[0].address"},
		"bad policy":          {Config{Policy: []byte(`pools: [{name: A, models: ["*"]}]`)}, "pools[0].name"},
		"unknown policy rule": {Config{Policy: []byte(`pools: [{name: a, models: ["*"], policy: {name: best}}]`)}, "pools[0].policy.name"},
		"unknown parameter":   {Config{Policy: []byte(`pools: [{name: a, models: ["*"], policy: {name: threshold, load: 1}}]`)}, "pools[0].policy.load"},
		"policy key twice":    {Config{Policy: []byte("off: true\noff: false\npools: []")}, "off"},
	} {
		c.cfg.Listen = "127.0.0.1:0"
		s, err := New(c.cfg)
		if err == nil {
			s.Close()
			t.Errorf("%s: accepted", name)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v lacks %q", name, err, c.want)
		}
	}
}

func TestOffInYAMLIsAKeyAndNotAFalse(t *testing.T) {
	d, err := parsePolicy("policy.yaml", ".", []byte("off: true\npools:\n- name: default\n  models: ['*']\n"), &vocabulary.Store{})
	if err != nil || !d.off || !d.parsed.Off {
		t.Errorf("%+v %v", d, err)
	}
}

func TestThePolicyFollowsTheWorkerListUnlessGiven(t *testing.T) {
	bubble(t, func(t *testing.T) {
		list := specs(alpha, beta)
		list[1].Pool = "code"
		b := start(t, newEngines(alpha, beta), Config{Workers: specs(alpha)})
		<-b.s.Ready()
		if err := b.s.SetMode("default", "observe"); err != nil {
			t.Fatal(err)
		}
		if err := b.s.SetWorkers(list); err != nil {
			t.Fatal(err)
		}
		text := string(b.s.Policy())
		for _, want := range []string{`"cluster":"pool-code"`, `"models":["code"]`, `"models":["*"]`, `"mode":"observe"`, `"mode":"route"`} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %s", text, want)
			}
		}
		if err := b.s.SetPolicy([]byte(`pools: [{name: code, models: [x], ring_units: 8}]`)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		g := b.gateway("g")
		g.catchUp()
		if len(g.roster) != 1 || g.refOf(beta) == 0 {
			t.Errorf("roster %v", g.roster)
		}
		if w := b.worker(alpha); !strings.Contains(w.Reason, "not in the policy") {
			t.Errorf("%+v", w)
		}
	})
}

// TestFilesAreWatchedWhileItRuns uses real files, a real address and real time:
// it waits for long-polls, never for a clock.
func TestFilesAreWatchedWhileItRuns(t *testing.T) {
	dir := t.TempDir()
	workers, policy := filepath.Join(dir, "workers.yaml"), filepath.Join(dir, "policy.yaml")
	put := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path+".tmp", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".tmp", path); err != nil {
			t.Fatal(err)
		}
	}
	good := "workers: [{address: \"" + alpha + "\"}]"
	put(workers, good)
	put(policy, "pools: [{name: default, models: ['*']}]")
	b := serve(t, newEngines(alpha, beta), Config{Listen: "127.0.0.1:0", WorkersFile: workers, PolicyFile: policy})
	<-b.s.Ready()
	g := b.gateway("g")
	until := func(what string, ok func() bool) {
		t.Helper()
		for began := time.Now(); !ok(); {
			g.poll(time.Second)
			if time.Since(began) > 20*time.Second {
				t.Fatalf("never: %s", what)
			}
		}
	}
	until("first list", func() bool { return len(g.roster) == 1 })
	put(workers, "workers: [{address: \""+alpha+"\"}, {address: \""+beta+"\"}]")
	until("second worker", func() bool { return len(g.roster) == 2 })
	put(workers, "workers: [{address: nowhere}]")
	put(policy, "pools: [{name: default, models: ['*'], policy: {name: round_robin}}]")
	until("other rule", func() bool { return strings.Contains(g.policy, "round_robin") })
	if len(g.roster) != 2 {
		t.Errorf("the bad list took effect: %v", g.roster)
	}
	put(workers, good)
	until("the former good list again", func() bool { return len(g.roster) == 1 })
	if status, body := b.do("PUT", "/v1/workers", []byte(good), "application/yaml"); status != 409 || !strings.Contains(string(body), "edit the file") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := b.do("PUT", "/v1/policy", []byte("pools: []"), "application/yaml"); status != 409 || !strings.Contains(string(body), "edit the file") {
		t.Errorf("%d %s", status, body)
	}
}

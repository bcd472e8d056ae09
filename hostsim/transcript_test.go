package hostsim

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts plays the stories in testdata/*.txt: what a proxy does to a
// host, and everything that follows, line by line. -rewrite writes them anew.
//
// Lines without a mark are the module's own log: what it was called with, and
// what each host call answered.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			return
		}
		story := &story{t: t}
		datadriven.RunTest(t, path, story.step)
	})
}

type story struct {
	t       *testing.T
	host    *Host
	calls   *HandDispatcher
	module  *Module
	vms     map[string]*VM
	plugins map[string]*Plugin
	streams map[string]*Stream
	fleet   *Fleet
	named   bool // several VMs: lines say whose they are
	dying   bool // a goroutine dump is passing by
	lines   []string
}

func (s *story) say(line string) { s.lines = append(s.lines, line) }

// log writes a module's line. The Go guest's goroutine dump after a panic is cut
// to its first line: the rest depends on the compiler.
func (s *story) log(e LogEntry) {
	if e.Plugin == "" && e.Level == LogError {
		first := strings.HasPrefix(e.Message, "panic:") || strings.HasPrefix(e.Message, "fatal error:") || strings.HasPrefix(e.Message, "runtime: ")
		if s.dying && !strings.HasPrefix(e.Message, "fatal error:") {
			return
		}
		s.dying = first
		if strings.HasPrefix(e.Message, "runtime: ") {
			return
		}
	} else {
		s.dying = false
	}
	line := e.Message
	if e.Plugin == "" && e.Level != LogInfo {
		line, _, _ = strings.Cut(line, "\n") // wazero adds the wasm stack
		line = "[" + e.Level.String() + "] " + line
	}
	if s.named || len(s.vms) > 1 {
		line = e.VM + ": " + line
	}
	s.say(line)
}

func (s *story) step(t *testing.T, d *datadriven.TestData) string {
	s.lines = nil
	if err := s.do(d); err != nil {
		s.say("error: " + err.Error())
	}
	if len(s.lines) == 0 {
		return "(nothing)\n"
	}
	return strings.Join(s.lines, "\n") + "\n"
}

func arg(d *datadriven.TestData, key, fallback string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return a.Vals[0]
		}
	}
	return fallback
}

func flag(d *datadriven.TestData, key string) bool {
	for _, a := range d.CmdArgs {
		if a.Key == key && len(a.Vals) == 0 {
			return true
		}
	}
	return false
}

// subject is the first bare word: the stream, plugin or VM that a step is about.
func subject(d *datadriven.TestData) string {
	if len(d.CmdArgs) > 0 && len(d.CmdArgs[0].Vals) == 0 {
		return d.CmdArgs[0].Key
	}
	return ""
}

func headerInput(d *datadriven.TestData) *HeaderMap {
	m := &HeaderMap{}
	for line := range strings.Lines(d.Input) {
		line = strings.TrimSpace(line)
		at := strings.Index(line[1:], ":") + 1
		m.Add(line[:at], strings.TrimSpace(line[at+1:]))
	}
	return m
}

func bodyInput(d *datadriven.TestData) []byte {
	if n := arg(d, "bytes", ""); n != "" {
		size, err := strconv.Atoi(n)
		if err != nil {
			panic(err)
		}
		return []byte(strings.Repeat("x", size))
	}
	return []byte(d.Input)
}

func number(d *datadriven.TestData, key string) int {
	n, err := strconv.Atoi(arg(d, key, "0"))
	if err != nil {
		panic(err)
	}
	return n
}

func (s *story) start() {
	if s.host != nil {
		return
	}
	s.calls = NewHandDispatcher("control")
	s.host = newTestHost(s.t, Options{
		Calls: s.calls, Log: s.log, Node: Node{ID: "node-1", Cluster: "edge"}, MemoryLimitMiB: 64,
	})
	s.module = compileGuest(s.t, s.host)
	s.vms, s.plugins, s.streams = map[string]*VM{}, map[string]*Plugin{}, map[string]*Stream{}
}

func (s *story) vmConfig(d *datadriven.TestData) VMConfig {
	cfg := VMConfig{
		Name: arg(d, "vm", "worker_0"), Module: s.module, VMID: arg(d, "vm_id", "story"),
		Configuration: []byte(arg(d, "vm_config", "")), EndStreamsOnTrap: flag(d, "end-streams-on-trap"),
	}
	cfg.ReloadBackoff, _ = time.ParseDuration(arg(d, "backoff", "1s"))
	switch arg(d, "policy", "reload") {
	case "open":
		cfg.FailurePolicy = FailOpen
	case "closed":
		cfg.FailurePolicy = FailClosed
	}
	return cfg
}

func pluginConfig(d *datadriven.TestData) PluginConfig {
	return PluginConfig{
		Name: arg(d, "plugin", "p"), RootID: arg(d, "root_id", ""), Configuration: []byte(d.Input),
		AllowOnHeadersStopIteration: flag(d, "allow-stop"), BufferLimitBytes: number(d, "limit"),
	}
}

func (s *story) do(d *datadriven.TestData) error {
	s.start()
	name := subject(d)
	switch d.Cmd {
	case "plugin": // plugin [vm=worker_0] [plugin=p] [allow-stop] [limit=N] [policy=...] [backoff=...]
		cfg := s.vmConfig(d)
		vm := s.vms[cfg.Name]
		if vm == nil {
			var err error
			if vm, err = s.host.NewVM(context.Background(), cfg); err != nil {
				return err
			}
			s.vms[cfg.Name] = vm
		}
		p, err := vm.AddPlugin(pluginConfig(d))
		if err != nil {
			return err
		}
		s.plugins[arg(d, "plugin", "p")] = p
		return nil
	case "reconfigure":
		return s.plugins[arg(d, "plugin", "p")].Reconfigure(pluginConfig(d))
	case "fleet":
		s.named = true
		f, err := s.host.Deploy(context.Background(), FleetConfig{
			VM: s.vmConfig(d), Plugins: []PluginConfig{pluginConfig(d)}, Workers: number(d, "workers"),
		})
		if err != nil {
			return err
		}
		s.fleet = f
		for i := range f.Plugins {
			s.plugins["p"+strconv.Itoa(i)] = f.Plugins[i][0]
		}
		return nil
	case "fleet-reconfigure":
		return s.fleet.Reconfigure(context.Background(), []PluginConfig{pluginConfig(d)})
	case "drain":
		s.vms[arg(d, "vm", "worker_0")].Drain()
		return nil
	case "reload":
		return s.vms[arg(d, "vm", "worker_0")].Reload(context.Background())
	case "vm":
		vm := s.vms[arg(d, "vm", "worker_0")]
		stats := vm.Stats()
		s.say(fmt.Sprintf("failed %t, traps %d, reloads %d, active streams %d", vm.Failed(), stats.Traps, stats.Reloads, stats.ActiveStreams))
		return nil
	case "advance":
		by, err := time.ParseDuration(name)
		if err != nil {
			return err
		}
		s.host.Advance(by)
		return nil
	case "run":
		s.host.Run()
		return nil
	case "answer", "answer-dead", "answer-reset":
		return s.answer(d)
	case "calls":
		for _, c := range s.calls.Pending() {
			s.say(fmt.Sprintf("call %d to %s %s, timeout %s", c.ID, c.Cluster, headerText(c.Headers), c.Timeout))
		}
		return nil
	case "metrics":
		for _, m := range s.host.Metrics() {
			if m.Type == Histogram {
				s.say(fmt.Sprintf("%s %s count %d sum %d", m.Type, m.Name, m.Count, m.Sum))
				continue
			}
			s.say(fmt.Sprintf("%s %s %d", m.Type, m.Name, m.Value))
		}
		return nil
	case "shared-data":
		for _, k := range s.host.SharedDataKeys(arg(d, "vm_id", "story")) {
			v, _, _ := s.host.SharedData(arg(d, "vm_id", "story"), k)
			s.say(fmt.Sprintf("%s = %q", k, v))
		}
		return nil
	case "enqueue":
		return s.host.Enqueue(arg(d, "vm_id", "story"), arg(d, "queue", ""), []byte(d.Input))
	}
	return s.doStream(d, name)
}

func (s *story) answer(d *datadriven.TestData) error {
	call := s.calls.Take()
	if call == nil {
		return fmt.Errorf("no call is waiting")
	}
	switch d.Cmd {
	case "answer-dead":
		call.ReplyDead()
	case "answer-reset":
		call.Fail()
	default:
		call.Reply(NewHeaderMap(":status", arg(d, "status", "200")), []byte(d.Input), nil)
	}
	s.host.Run()
	return nil
}

func (s *story) doStream(d *datadriven.TestData, name string) error {
	st := s.streams[name]
	if st == nil {
		p := s.plugins[arg(d, "plugin", "p")]
		if p == nil {
			return fmt.Errorf("%s: no such plugin", d.Cmd)
		}
		st = p.NewStream(&Recorder{Prefix: name + " ", Line: s.say})
		s.streams[name] = st
		st.Info.SourceAddress = "10.0.0.1:5555"
	}
	end := flag(d, "end")
	switch d.Cmd {
	case "request":
		h := headerInput(d)
		if h.Len() == 0 {
			h = NewHeaderMap(":method", "POST", ":path", "/v1/completions", ":authority", "llm")
		}
		st.RequestHeaders(h, end)
	case "data":
		st.RequestData(bodyInput(d), end)
	case "trailers":
		st.RequestTrailers(headerInput(d))
	case "response":
		st.Info.UpstreamAddress = arg(d, "from", "10.0.0.9:8000")
		st.Info.UpstreamRequestAttemptCount = 1
		st.ResponseHeaders(NewHeaderMap(":status", arg(d, "status", "200")), end)
	case "response-data":
		st.ResponseData(bodyInput(d), end)
	case "response-trailers":
		st.ResponseTrailers(headerInput(d))
	case "upstream-reset":
		st.UpstreamReset(strings.ReplaceAll(arg(d, "reason", "connection_termination"), "_", " "))
	case "local-reply":
		st.SendLocalReply(number(d, "status"), nil, []byte(d.Input), "no_healthy_upstream")
	case "abort":
		st.Close()
	case "held":
		held, n := st.RequestHeld()
		rheld, rn := st.ResponseHeld()
		s.say(fmt.Sprintf("request held %t (%d bytes), response held %t (%d bytes), done %t", held, n, rheld, rn, st.Done()))
	default:
		return fmt.Errorf("unknown step %q", d.Cmd)
	}
	return nil
}

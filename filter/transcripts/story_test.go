package transcripts

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// TestStories runs the files in testdata. Each tells the life of some requests
// in one proxy; what the module did stands below each step.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &story{t: t}
		datadriven.RunTest(t, path, s.step)
	})
}

// story is a proxy with what has been told of it so far.
type story struct {
	t       *testing.T
	p       *proxy
	reports int
	logs    int
}

func (s *story) step(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "proxy":
		return s.proxy(d)
	case "wait":
		s.p.advance(duration(t, d.CmdArgs[0].Key))
		return s.news()
	case "control":
		return s.control(d)
	case "request":
		return s.request(d)
	case "more":
		return s.more(d)
	case "answer":
		return s.answer(d)
	case "abort":
		x := s.exchange(d)
		before := len(x.out.Lines)
		x.Close()
		return lines(x, before)
	case "crash":
		vm := s.p.fleet.Main
		if !d.HasArg("main") {
			vm = s.p.fleet.Workers[integer(d, "vm", 0)]
		}
		vm.Close()
		return ""
	case "reconfigure":
		return s.reconfigure(d)
	case "books":
		return s.books()
	case "lease":
		return s.lease(d)
	case "slots":
		return s.slots()
	case "usage":
		return s.usage()
	case "metrics":
		return s.metrics(d)
	case "table":
		return s.table()
	case "cells":
		return s.cells()
	}
	d.Fatalf(t, "unknown command")
	return ""
}

// proxy starts a proxy whose module has the configuration in the input.
func (s *story) proxy(d *datadriven.TestData) string {
	wasm := modules.full
	if text(d, "build", "") == "noresponsebody" {
		wasm = modules.noResponseBody
	}
	p, err := tryStart(s.t, wasm, d.Input, integer(d, "vms", 1), !d.HasArg("cannot-stop-at-headers"))
	s.p, s.reports, s.logs = p, 0, 0
	if err != nil {
		return "refused\n" + s.news()
	}
	return s.news()
}

func (s *story) reconfigure(d *datadriven.TestData) string {
	config := s.p.config
	config.Configuration = []byte(d.Input)
	if err := s.p.fleet.Reconfigure(s.t.Context(), []hostsim.PluginConfig{config}); err != nil {
		return "refused\n" + s.news()
	}
	s.p.config = config
	return s.news()
}

// news is what control and the log have heard since the last step.
func (s *story) news() string {
	var b strings.Builder
	for ; s.reports < len(s.p.control.reports); s.reports++ {
		fmt.Fprintln(&b, "report:", s.p.control.reports[s.reports])
	}
	for ; s.logs < len(s.p.logs); s.logs++ {
		fmt.Fprintln(&b, "log:", s.p.logs[s.logs])
	}
	return b.String()
}

// control changes the control service, one change a line.
func (s *story) control(d *datadriven.TestData) string {
	c := s.p.control
	for line := range strings.Lines(d.Input) {
		f := strings.Fields(line)
		switch f[0] {
		case "dead":
			c.dead = f[1]
		case "alive":
			c.dead = ""
		case "off":
			c.off = f[1] == "true"
			c.policy["off"] = c.off
			c.changed()
		case "mode":
			c.pool(0)["mode"] = f[1]
			c.changed()
		case "policy":
			c.pool(0)["policy"] = map[string]any{"name": f[1]}
			c.changed()
		case "restart": // a new history that knows nothing
			c.epoch++
			c.version = 1
			c.entries, c.log = map[uint64]table.Entry{}, nil
			c.keepPages = len(f) > 1 && f[1] == "keep-pages"
		case "grow":
			c.epoch++
			c.bits = uint8(number(f[1]))
		case "worker": // worker <ref> healthy|draining|down|gone
			c.set(uint16(number(f[1])), f[2])
		case "pool": // pool <name> <model>: a second pool with worker 4
			pools := c.policy["pools"].([]map[string]any)
			c.policy["pools"] = append(pools, map[string]any{"name": f[1], "index": len(pools), "models": []string{f[2]}})
			c.workers[3].Pool = uint8(len(pools))
			c.changed()
		default:
			d.Fatalf(s.t, "control can't %s", f[0])
		}
	}
	return ""
}

func (c *control) set(ref uint16, state string) {
	states := map[string]uint8{"unknown": 0, "healthy": 1, "draining": 2, "down": 3}
	for i := range c.workers {
		if c.workers[i].Ref != ref {
			continue
		}
		if state == "gone" {
			c.workers = slices.Delete(c.workers, i, i+1)
			break
		}
		c.workers[i].load.State = states[state]
	}
	c.changed()
}

// request sends a request. The body is made of system=, user= and turns=, or
// read from file=, or absent (none); chunk= cuts it, wait keeps its end back, later
// all of it.
func (s *story) request(d *datadriven.TestData) string {
	name := d.CmdArgs[0].Key
	headers := []string{":method", text(d, "method", "POST"), ":path", text(d, "path", "/v1/chat/completions"), ":authority", "llm"}
	if kind := text(d, "type", "application/json"); kind != "none" {
		headers = append(headers, "content-type", kind)
	}
	for line := range strings.Lines(d.Input) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		headers = append(headers, key, value)
	}
	body := chat(text(d, "model", "m"), integer(d, "system", 0), text(d, "user", "hello"))
	if topic := text(d, "topic", ""); topic != "" {
		body = bytes.ReplaceAll(body, []byte("helpful"), []byte(topic))
	}
	if file := text(d, "file", ""); file != "" {
		raw, err := os.ReadFile(filepath.Join("..", "body", "testdata", "inputs", file))
		if err != nil {
			d.Fatalf(s.t, "%v", err)
		}
		body = raw
	}
	if d.HasArg("gzip") {
		body = zip(body)
	}
	if n := integer(d, "pad", 0); n > 0 {
		body = append(body, bytes.Repeat([]byte(" "), n)...)
	}
	if d.HasArg("length") {
		headers = append(headers, "content-length", strconv.Itoa(len(body)))
	}
	if d.HasArg("none") {
		body = nil
	}
	x := &exchange{}
	x.Stream = s.p.fleet.Plugins[integer(d, "vm", 0)][0].NewStream(&x.out)
	s.p.streams[name] = x
	x.RequestHeaders(hostsim.NewHeaderMap(headers...), body == nil)
	switch {
	case body == nil, d.HasArg("later"):
	case d.HasArg("wait"):
		x.sent.Write(body)
		x.RequestData(body, false)
	default:
		x.body(body, integer(d, "chunk", 0))
	}
	return lines(x, 0) + state(x)
}

// more continues a request whose end was kept back: end, trailers or data.
func (s *story) more(d *datadriven.TestData) string {
	x := s.exchange(d)
	before := len(x.out.Lines)
	switch d.CmdArgs[1].Key {
	case "now": // what it has done since
		return lines(x, x.told) + state(x)
	case "end":
		x.RequestData(nil, true)
	case "trailers":
		x.RequestTrailers(hostsim.NewHeaderMap("x-checksum", "1"))
	case "data":
		x.RequestData(bytes.Repeat([]byte(" "), integer(d, "size", 1)), false)
	}
	return lines(x, before) + state(x)
}

// answer lets a worker answer, one piece of the body a line.
func (s *story) answer(d *datadriven.TestData) string {
	x := s.exchange(d)
	before := len(x.out.Lines)
	var pieces []string
	kind := text(d, "type", "json")
	contentType := map[string]string{"json": "application/json", "sse": "text/event-stream; charset=utf-8", "text": "text/plain"}[kind]
	for line := range strings.Lines(d.Input) {
		line = strings.TrimSuffix(line, "\n")
		if kind == "sse" {
			line = "data: " + line + "\n\n"
		}
		pieces = append(pieces, line)
	}
	if d.HasArg("reset") {
		x.UpstreamReset(text(d, "reset", "connection failure"))
		return lines(x, before)
	}
	if d.HasArg("open") { // the last piece is not the end
		x.Info.UpstreamAddress = text(d, "from", "")
		x.Info.UpstreamRequestAttemptCount = 1
		x.ResponseHeaders(hostsim.NewHeaderMap(":status", "200", "content-type", contentType), false)
		for _, piece := range pieces {
			x.ResponseData([]byte(piece), false)
		}
		return lines(x, before)
	}
	x.answer(text(d, "from", ""), integer(d, "status", 200), integer(d, "attempts", 1), contentType, pieces...)
	return lines(x, before)
}

func (s *story) exchange(d *datadriven.TestData) *exchange {
	x := s.p.streams[d.CmdArgs[0].Key]
	if x == nil {
		d.Fatalf(s.t, "no request %s", d.CmdArgs[0].Key)
	}
	return x
}

// lines are what the filter let through since a step began.
func lines(x *exchange, since int) string {
	var b strings.Builder
	x.told = len(x.out.Lines)
	for _, line := range x.out.Lines[since:] {
		fmt.Fprintln(&b, line)
	}
	return b.String()
}

// state is what is held, and what the companion filters would read.
func state(x *exchange) string {
	var b strings.Builder
	if held, n := x.RequestHeld(); held {
		fmt.Fprintf(&b, "held with %d bytes\n", n)
	}
	for _, key := range []string{"gw.dest", "gw.pool", "gw.decision"} {
		if v, ok := x.FilterState(key); ok && (key != "gw.decision" || x.out.Request == nil || x.out.Request.Value("x-warmpath-decision") == "") {
			fmt.Fprintf(&b, "filter state %s=%s\n", key, v)
		}
	}
	return b.String()
}

// books are the rows in shared data: what each VM says it has in flight.
func (s *story) books() string {
	keys := wire.NewKeys("default")
	var b strings.Builder
	for slot := range uint16(wire.MaxSlots) {
		value, _, ok := s.p.host.SharedData(vmID, keys.Row(slot))
		if !ok {
			continue
		}
		fmt.Fprintf(&b, "slot %d:", slot)
		row, err := wire.DecodeRow(value, func(r wire.InFlight) {
			fmt.Fprintf(&b, " worker %d has %d requests, %d uncached tokens;", r.Ref, r.Requests, r.UncachedTokens)
		})
		if err != nil {
			s.t.Fatal(err)
		}
		if row.TickUnixNanos == 0 {
			fmt.Fprint(&b, " swept")
		} else if age := s.p.host.Now().UnixNano() - row.TickUnixNanos; age > int64(time.Second) {
			fmt.Fprintf(&b, " silent for %v", time.Duration(age).Round(time.Second))
		}
		fmt.Fprintln(&b)
	}
	for ref := range uint16(100) {
		if r, ok := s.p.control.inFlight[ref]; ok {
			fmt.Fprintf(&b, "control: worker %d has %d requests, %d uncached tokens\n", r.Ref, r.Requests, r.UncachedTokens)
		}
	}
	return b.String()
}

// metrics prints the counters that are not zero, those with a prefix.
func (s *story) metrics(d *datadriven.TestData) string {
	s.p.advance(100 * time.Millisecond) // a tick flushes
	var b strings.Builder
	b.WriteString(s.news())
	for _, m := range s.p.host.Metrics() {
		for _, arg := range d.CmdArgs {
			if strings.HasPrefix(m.Name, "warmpath."+arg.Key) && (m.Value != 0 || m.Count != 0) {
				fmt.Fprintf(&b, "%s %d\n", strings.TrimPrefix(m.Name, "warmpath."), m.Value+m.Count)
			}
		}
	}
	return b.String()
}

// table tells what is in shared data as the table.
func (s *story) table() string {
	keys := wire.NewKeys("default")
	value, _, ok := s.p.host.SharedData(vmID, keys.Meta())
	if !ok {
		return "no table\n"
	}
	m, err := table.DecodeMeta(value)
	if err != nil {
		s.t.Fatal(err)
	}
	entries, pages := 0, 0
	for _, bits := range []uint8{6, 8, 10} {
		for index := range uint32(1) << bits {
			page, _, _ := s.p.host.SharedData(vmID, keys.Page(bits, index))
			if len(page) == 0 {
				continue
			}
			if err := table.Page(page).Check(); err != nil {
				s.t.Fatal(err)
			}
			if bits == m.Bits {
				entries += table.Page(page).Count()
			}
			pages++
		}
	}
	return fmt.Sprintf("bits %d, epoch %d, version %d, ready %v, off %v: %d entries, %d pages stored\n", m.Bits, m.Epoch, m.Version, m.Ready, m.Off, entries, pages)
}

func zip(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

func text(d *datadriven.TestData, key, otherwise string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return strings.Join(a.Vals, ",")
		}
	}
	return otherwise
}

func integer(d *datadriven.TestData, key string, otherwise int) int {
	v := text(d, key, "")
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		panic(err)
	}
	return n
}

func duration(t *testing.T, s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// cells tells what VMs have told each other of prompts that they have just sent.
func (s *story) cells() string {
	var b strings.Builder
	for cell := range uint8(wire.SentCells) {
		value, _, ok := s.p.host.SharedData(vmID, wire.NewKeys("default").Sent(cell))
		if !ok {
			continue
		}
		err := wire.ForEachSent(value, func(r *wire.Sent, _ []byte, n int) {
			fmt.Fprintf(&b, "sent to %d, ready after %d ms: %d checkpoints\n", r.Ref, r.ReadyMillis, n)
		})
		if err != nil {
			fmt.Fprintln(&b, err)
		}
	}
	return b.String()
}

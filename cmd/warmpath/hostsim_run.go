package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/hostsim"
	"github.com/warmpath/warmpath/hostsim/hosttest"
	"github.com/warmpath/warmpath/hostsim/httpfile"
)

// hostsimRun is one run of a module.
type hostsimRun struct {
	module, config, vmConfig, response, symbols string
	requests, httpCalls, faults, env            []string
	trace, traceAll, asJSON, allowStop          bool
	chunk, bufferLimit                          int
	advance                                     time.Duration

	responses []httpfile.Message
	served    int // responses taken so far
	unknown   map[string]bool
	out, errs io.Writer
}

func hostsimRunCommand() *cobra.Command {
	r := &hostsimRun{}
	cmd := &cobra.Command{
		Use:   "run MODULE.wasm",
		Short: "Send requests through a module and show what becomes of them",
		Long: `Starts the module and sends it the requests of a .http file, one after the
other, through one VM on a virtual clock:

  ### a name for the output
  POST http://example.com/v1/chat
  Content-Type: application/json

  {"user": "ann"}

Lines that begin with ### separate requests. What the module lets through is
answered 200 and "ok", or by --response (HTTP/1.1 200 OK, fields, empty line,
body; the n-th answers the n-th request, the last one all further ones).

--trace shows every call between host and module with its decoded arguments.
When the module traps, the error names the functions: Go modules by themselves,
others by their name section or --symbols.

Faults (--fault, repeatable) come at an exact call:
  proxy_on_request_body:2=trap             the second one traps
  proxy_set_shared_data:1=CasMismatch      a host call answers a status
  proxy_on_memory_allocate:5=fail          the module has no memory
  memory.grow:1+=fail                      nor gets any
  proxy_http_call:1=lose                   no reply but the timeout
  proxy_on_tick:4=stall 2s                 the thread stands still
  proxy_on_tick:4=clock -1h                the wall clock jumps

Exit status: 0 the module ran, 1 it could not be started, or it trapped.`,
		Example: `  warmpath hostsim run filter.wasm --request chat.http
  warmpath hostsim run filter.wasm --request chat.http --config filter.json --trace
  warmpath hostsim run filter.wasm --request chat.http --http-call auth=allow.http --http-call quota=dead
  warmpath hostsim run filter.wasm --request chat.http --fault proxy_on_request_body:1=trap`,
		Args: exactlyOne("the module to run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.module, r.out, r.errs = args[0], cmd.OutOrStdout(), cmd.ErrOrStderr()
			return r.run()
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&r.requests, "request", nil, "file with requests, repeatable (without one: GET /)")
	f.StringVar(&r.config, "config", "", "file with the plugin's configuration")
	f.StringVar(&r.vmConfig, "vm-config", "", "file with the VM's configuration")
	f.StringVar(&r.response, "response", "", "file with the upstream's responses")
	f.StringArrayVar(&r.httpCalls, "http-call", nil, "cluster=FILE.http, =dead (503), =break or =silent: how http_call is answered, repeatable")
	f.StringArrayVar(&r.faults, "fault", nil, "what goes wrong at which call, repeatable")
	f.StringArrayVar(&r.env, "env", nil, "NAME=value in the module's environment, repeatable")
	f.BoolVar(&r.trace, "trace", false, "print every call between host and module")
	f.BoolVar(&r.traceAll, "trace-all", false, "like --trace, with allocations and WASI calls")
	f.BoolVar(&r.asJSON, "json", false, "print JSON")
	f.BoolVar(&r.allowStop, "allow-stop-iteration", false, "Envoy's allow_on_headers_stop_iteration: show the body to a filter that stopped at headers")
	f.IntVar(&r.chunk, "chunk", 0, "cut bodies into pieces of that many bytes (0: whole)")
	f.IntVar(&r.bufferLimit, "buffer-limit", 0, "bytes that may wait in the filter before 413 (0: 1 MiB)")
	f.DurationVar(&r.advance, "advance", 0, "let that much time pass after each request: ticks, timeouts")
	f.StringVar(&r.symbols, "symbols", "", "unstripped build of the module, for names in stack traces")
	return cmd
}

// stop is what a failed hosttest.T carries up.
type stop struct{ message string }

// console is hosttest's T outside of tests.
type console struct {
	errs io.Writer
	todo []func()
}

func (c *console) Helper()          {}
func (c *console) Name() string     { return "run" }
func (c *console) TempDir() string  { return os.TempDir() }
func (c *console) Cleanup(f func()) { c.todo = append(c.todo, f) }
func (c *console) Errorf(format string, args ...any) {
	fmt.Fprintf(c.errs, strings.TrimPrefix(format, "hosttest: ")+"\n", args...)
}

func (c *console) Fatalf(format string, args ...any) {
	panic(stop{fmt.Sprintf(strings.TrimPrefix(format, "hosttest: "), args...)})
}

func (c *console) end() {
	for i := len(c.todo) - 1; i >= 0; i-- {
		c.todo[i]()
	}
}

// outcome is one request's line in the JSON.
type outcome struct {
	Name     string   `json:"name,omitempty"`
	Request  string   `json:"request"`
	Outcome  string   `json:"outcome"` // answered, local_reply, held, cut, unanswered
	Details  string   `json:"details,omitempty"`
	Upstream *message `json:"upstream,omitempty"`
	Client   *message `json:"client,omitempty"`
	Trace    []string `json:"trace,omitempty"`
}

type message struct {
	Headers  [][2]string `json:"headers"`
	Body     string      `json:"body"`
	Trailers [][2]string `json:"trailers,omitempty"`
}

type runReport struct {
	Module   string            `json:"module"`
	Start    []string          `json:"start,omitempty"` // the trace of starting
	Requests []outcome         `json:"requests"`
	Logs     []string          `json:"logs"`
	Metrics  map[string]uint64 `json:"metrics,omitempty"`
	Trap     *trapReport       `json:"trap,omitempty"`
}

type trapReport struct {
	Reason   string   `json:"reason"`
	Callback string   `json:"callback"`
	Panic    string   `json:"panic,omitempty"`
	Stack    []string `json:"stack,omitempty"`
}

func (r *hostsimRun) run() (err error) {
	wasm, err := os.ReadFile(r.module)
	if err != nil {
		return fmt.Errorf("read the module: %w", err)
	}
	requests, err := r.readRequests()
	if err != nil {
		return err
	}
	options, err := r.options()
	if err != nil {
		return err
	}
	c := &console{errs: r.errs}
	defer c.end()
	defer func() {
		if s, ok := recover().(stop); ok {
			err = errors.New(s.message)
		}
	}()
	f, err := hosttest.Try(c, filepath.Base(r.module), wasm, options...)
	report := runReport{Module: r.module, Logs: []string{}, Requests: []outcome{}}
	if r.trace {
		report.Start = lines(f.Transcript())
	}
	if err == nil {
		for i, m := range requests {
			report.Requests = append(report.Requests, r.send(f, m, i))
		}
		for _, m := range f.Host.Metrics() {
			if report.Metrics == nil {
				report.Metrics = map[string]uint64{}
			}
			report.Metrics[m.Name] = f.Metric(m.Name)
		}
		err = f.Err()
	}
	for _, e := range f.Logs() {
		report.Logs = append(report.Logs, e.Level.String()+": "+e.Message)
	}
	var trap *hostsim.TrapError
	if errors.As(err, &trap) {
		report.Trap = &trapReport{Reason: trap.Reason, Callback: trap.Callback, Panic: trap.Panic}
		for _, frame := range trap.Stack {
			report.Trap.Stack = append(report.Trap.Stack, frame.String())
		}
	}
	if r.asJSON {
		enc := json.NewEncoder(r.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if jerr := enc.Encode(report); jerr != nil {
			return jerr
		}
	} else {
		r.print(report, f)
	}
	switch {
	case err == nil:
		return nil
	case f.Fleet == nil && trap == nil && errors.Is(err, hostsim.ErrModule):
		return fmt.Errorf("%w (warmpath hostsim check %s says what hosts need)", err, r.module)
	case f.Fleet == nil:
		return err
	}
	return fmt.Errorf("the module trapped: %w", err)
}

func (r *hostsimRun) readRequests() ([]httpfile.Message, error) {
	if len(r.requests) == 0 {
		return []httpfile.Message{{Method: "GET", Target: "/"}}, nil
	}
	var all []httpfile.Message
	for _, path := range r.requests {
		some, err := httpfile.Read(path, httpfile.ParseRequests)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// options are the flags in hosttest's words.
func (r *hostsimRun) options() ([]hosttest.Option, error) {
	all := []hosttest.Option{
		hosttest.Faults(r.faults...), hosttest.BufferLimit(r.bufferLimit), hosttest.Upstream(r.upstream),
		hosttest.Symbols(r.symbols), hosttest.Trace(r.hear),
	}
	if r.allowStop {
		all = append(all, hosttest.AllowStopIteration())
	}
	if r.traceAll {
		r.trace = true
		all = append(all, hosttest.TraceAll())
	}
	for path, option := range map[string]func(string) hosttest.Option{r.config: hosttest.Config, r.vmConfig: hosttest.VMConfig} {
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
		all = append(all, option(string(text)))
	}
	for _, e := range r.env {
		name, value, ok := strings.Cut(e, "=")
		if !ok {
			return nil, fmt.Errorf("--env %s: want NAME=value", e)
		}
		all = append(all, hosttest.Env(name, value))
	}
	if r.response != "" {
		var err error
		if r.responses, err = httpfile.Read(r.response, httpfile.ParseResponses); err != nil {
			return nil, err
		}
	}
	for _, spec := range r.httpCalls {
		cluster, how, ok := strings.Cut(spec, "=")
		if !ok || cluster == "" {
			return nil, fmt.Errorf("--http-call %s: want cluster=FILE.http, cluster=dead, cluster=break or cluster=silent", spec)
		}
		answer, err := httpCallAnswer(how)
		if err != nil {
			return nil, fmt.Errorf("--http-call %s: %w", spec, err)
		}
		all = append(all, hosttest.Cluster(cluster, answer))
	}
	return all, nil
}

// httpCallAnswer answers calls as said: the n-th by the n-th message of a file.
func httpCallAnswer(how string) (func(*hosttest.Call), error) {
	switch how {
	case "dead":
		return (*hosttest.Call).AnswerDead, nil
	case "break":
		return (*hosttest.Call).Break, nil
	case "silent":
		return func(*hosttest.Call) {}, nil
	}
	messages, err := httpfile.Read(how, httpfile.ParseResponses)
	if err != nil {
		return nil, err
	}
	n := 0
	return func(c *hosttest.Call) {
		m := messages[min(n, len(messages)-1)]
		n++
		var fields []string
		for _, f := range m.Fields {
			fields = append(fields, f.Name, f.Value)
		}
		c.Answer(m.Status, string(m.Body), fields...)
	}, nil
}

// hear notes the clusters which the module calls in vain.
func (r *hostsimRun) hear(e hostsim.Event) {
	if e.Name == "proxy_http_call" && e.Result == "BadArgument" && len(e.Args) > 0 {
		if r.unknown == nil {
			r.unknown = map[string]bool{}
		}
		r.unknown[strings.Trim(e.Args[0], `"`)] = true
	}
}

func (r *hostsimRun) upstream(hosttest.Request) hosttest.Response {
	if len(r.responses) == 0 {
		return hosttest.Response{Body: "ok"}
	}
	m := r.responses[min(r.served, len(r.responses)-1)]
	r.served++
	return hosttest.Response{Status: m.Status, Headers: headers(m.Fields), Chunks: r.pieces(m.Body), Trailers: trailers(m.Trailers)}
}

func headers(fields []httpfile.Field) *hostsim.HeaderMap {
	h := hosttest.Header()
	for _, f := range fields {
		h.Add(f.Name, f.Value)
	}
	return h
}

func trailers(fields []httpfile.Field) *hostsim.HeaderMap {
	if len(fields) == 0 {
		return nil
	}
	return headers(fields)
}

func (r *hostsimRun) pieces(body []byte) []string {
	var all []string
	for len(body) > 0 {
		n := len(body)
		if r.chunk > 0 {
			n = min(n, r.chunk)
		}
		all = append(all, string(body[:n]))
		body = body[n:]
	}
	return all
}

func (r *hostsimRun) send(f *hosttest.Filter, m httpfile.Message, n int) outcome {
	x := f.Do(hosttest.Request{
		Method: m.Method, Path: m.Target, Host: m.Host, Headers: headers(m.Fields), Chunks: r.pieces(m.Body), Trailers: trailers(m.Trailers),
	})
	if r.advance > 0 {
		f.Advance(r.advance)
	}
	o := outcome{Name: m.Name, Request: m.Method + " " + m.Target}
	out := x.Out
	if out.Request != nil {
		o.Upstream = &message{pairsOf(out.Request), string(out.RequestBody), pairsOf(out.RequestTrailer)}
	}
	if out.Response != nil {
		o.Client = &message{pairsOf(out.Response), string(out.ResponseBody), pairsOf(out.ResponseTrailer)}
	}
	held, bytes := x.Stream.RequestHeld()
	heldBack, backBytes := x.Stream.ResponseHeld()
	switch {
	case out.ResetDetails != "":
		o.Outcome, o.Details = "cut", out.ResetDetails
	case out.Replied != nil:
		o.Outcome, o.Details = "local_reply", out.Replied.Details
	case heldBack:
		o.Outcome, o.Details = "held", fmt.Sprintf("the filter holds the response, %d bytes of body wait", backBytes)
	case held:
		o.Outcome, o.Details = "held", fmt.Sprintf("the filter holds the request, %d bytes of body wait", bytes)
		if !r.allowStop && len(m.Body) > 0 && out.Request == nil {
			o.Details += "; without --allow-stop-iteration a filter that stops at headers sees no body"
		}
	case out.Response != nil:
		o.Outcome = "answered"
	default:
		o.Outcome = "unanswered"
	}
	if r.trace {
		o.Trace = lines(x.Transcript())
	}
	return o
}

func pairsOf(h *hostsim.HeaderMap) [][2]string {
	if h == nil {
		return nil
	}
	all := make([][2]string, 0, h.Len())
	for _, f := range h.Fields() {
		all = append(all, [2]string{f.Key, f.Value})
	}
	return all
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

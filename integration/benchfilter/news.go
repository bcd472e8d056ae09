package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/warmpath/warmpath/control"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/integration/bench"
	"github.com/warmpath/warmpath/integration/envoyrun"
)

// NewsCost is what a request costs the whole Envoy, and control, when dispatches
// are told at most so often: the same rate goes to Envoys that differ in
// control.news_interval_ms alone, each with a control service of its own.
type NewsCost struct {
	Threads        int     `json:"threads"`
	Rate           int     `json:"requests_per_second"`
	IntervalMillis int     `json:"news_interval_ms"`
	Build          string  `json:"build"`    // this, or against
	Envoy          float64 `json:"envoy_us"` // by request, median of the rounds
	Lowest         float64 `json:"envoy_lowest_us"`
	Highest        float64 `json:"envoy_highest_us"`
	Control        float64 `json:"control_us"`
	Calls          float64 `json:"calls_per_second"` // to control: batches and polls
	PagesWritten   float64 `json:"pages_written_per_request"`
}

var (
	newsThreads   = []int{1, 2}
	newsRates     = []int{50, 250, 1000}
	newsIntervals = []int{25, 50, 100, 250}
)

const (
	newsBytes = 4000 // of a body
	newsRound = 2 * time.Second
)

// told is an Envoy with a control service of its own, and what its rounds cost.
type told struct {
	build
	interval       int
	control        *controlProcess
	us, controlUS  []float64
	calls, written float64
}

func measureNews(ctx context.Context, o options, b *backend, binary, module string, report *Report) error {
	for _, threads := range newsThreads {
		if err := newsOf(ctx, o, b, binary, buildsOf(o, module), threads, report); err != nil {
			return fmt.Errorf("%d threads: %w", threads, err)
		}
	}
	return nil
}

func newsOf(ctx context.Context, o options, b *backend, binary string, builds []build, threads int, report *Report) error {
	var all []*told
	for _, build := range builds {
		for _, interval := range newsIntervals {
			t := &told{build: build, interval: interval}
			var err error
			if t.control, err = startControl(b); err != nil {
				return err
			}
			defer t.control.stop()
			if t.envoy, err = b.envoyWith(ctx, binary, build.module, threads, func(o *envoyrun.Options) {
				o.Ports[envoyrun.ControlPort] = t.control.port
				o.Settings = func(settings envoyrun.Tree) {
					settings["control"].(envoyrun.Tree)["news_interval_ms"] = interval
				}
			}); err != nil {
				return err
			}
			defer t.envoy.Stop()
			if err := waitSteered(ctx, bench.NewClient(4), t.envoy); err != nil {
				return err
			}
			all = append(all, t)
		}
	}
	c, bodies := bench.NewClient(64), bench.NewBodies(newsBytes)
	for _, rate := range newsRates {
		for _, t := range all {
			*t = told{build: t.build, interval: t.interval, control: t.control}
		}
		for round := range o.rounds {
			for i := range all {
				if err := all[(i+round)%len(all)].round(ctx, c, bodies, rate); err != nil {
					return err
				}
			}
		}
		for _, t := range all {
			cost := NewsCost{
				Threads: threads, Rate: rate, IntervalMillis: t.interval, Build: t.name,
				Envoy: bench.Median(t.us), Lowest: slices.Min(t.us), Highest: slices.Max(t.us), Control: bench.Median(t.controlUS),
				Calls: t.calls / float64(o.rounds), PagesWritten: t.written / float64(o.rounds),
			}
			report.News = append(report.News, cost)
			fmt.Fprintf(o.log, "  %d threads, %4d/s, told every %3d ms, %s: %5.0f us, control %4.0f, %.1f calls/s\n", threads, rate, cost.IntervalMillis, cost.Build, cost.Envoy, cost.Control, cost.Calls)
		}
	}
	return nil
}

// round sends requests for a while and notes what they cost.
func (t *told) round(ctx context.Context, c *bench.Client, bodies *bench.Bodies, rate int) error {
	batch := make([][]byte, rate*int(newsRound/time.Second))
	for i := range batch {
		batch[i] = bodies.Next()
	}
	// Asking Envoy costs time, too: its counters are read outside.
	callsBefore, pagesBefore, err := t.counted(ctx)
	if err != nil {
		return err
	}
	envoyBefore, controlBefore, err := t.spent()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := c.Paced(ctx, len(batch), rate, func(i int) (*http.Request, error) { return post(t.envoy, batch[i]) }); err != nil {
		return err
	}
	<-time.After(100 * time.Millisecond) // what the last ones leave to do
	envoyAfter, controlAfter, err := t.spent()
	if err != nil {
		return err
	}
	took := time.Since(began)
	callsAfter, pagesAfter, err := t.counted(ctx)
	if err != nil {
		return err
	}
	n := float64(len(batch))
	t.us = append(t.us, bench.Micros(envoyAfter-envoyBefore)/n)
	t.controlUS = append(t.controlUS, bench.Micros(controlAfter-controlBefore)/n)
	t.calls += float64(callsAfter-callsBefore) / took.Seconds()
	t.written += (pagesAfter - pagesBefore) / n
	return nil
}

// spent is the CPU time of both processes.
func (t *told) spent() (envoy, control time.Duration, err error) {
	if envoy, err = envoyrun.CPU(t.envoy.PID()); err == nil {
		control, err = envoyrun.CPU(t.control.cmd.Process.Pid)
	}
	return envoy, control, err
}

// counted are the calls to control and the pages written so far.
func (t *told) counted(ctx context.Context) (calls int64, written float64, err error) {
	const total = "cluster.warmpath-control.upstream_rq_total"
	stats, err := t.envoy.Stats(ctx, `^cluster\.warmpath-control\.upstream_rq_total`)
	if err != nil {
		return 0, 0, err
	}
	pages, err := pagesOf(ctx, t.envoy)
	return stats[total], pages[1], err
}

// controlMode is the argument that makes this program a control service.
const controlMode = "control"

// controlProcess is a control service in a process of its own.
type controlProcess struct {
	cmd  *exec.Cmd
	port int
}

// controlSetup is what it reads.
type controlSetup struct {
	Workers []discovery.Spec
	Policy  []byte
}

// startControl runs this program as a control service with a backend's workers.
func startControl(b *backend) (*controlProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	setup, err := json.Marshal(controlSetup{b.specs, b.policy})
	if err != nil {
		return nil, err
	}
	p := &controlProcess{cmd: exec.Command(self, controlMode)}
	p.cmd.Stdin, p.cmd.Stderr = strings.NewReader(string(setup)), io.Discard
	p.cmd.SysProcAttr = envoyrun.DieWithParent()
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a control service: %w", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		_, err = fmt.Sscanf(line, "127.0.0.1:%d", &p.port)
	}
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("the control service doesn't say where it listens: %w", err)
	}
	return p, nil
}

func (p *controlProcess) stop() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// runControl is a control service until it is killed. It says where it listens.
func runControl(stdin io.Reader, stdout, stderr io.Writer) int {
	fail := func(err error) int {
		fmt.Fprintf(stderr, "benchfilter control: %v\n", err)
		return 1
	}
	var setup controlSetup
	if err := json.NewDecoder(stdin).Decode(&setup); err != nil {
		return fail(err)
	}
	s, err := control.New(control.Config{Listen: "127.0.0.1:0", Token: "change-me", Workers: setup.Workers, Policy: setup.Policy})
	if err != nil {
		return fail(err)
	}
	go func() {
		<-s.Ready()
		fmt.Fprintln(stdout, s.Addr())
	}()
	return fail(s.Run(context.Background()))
}

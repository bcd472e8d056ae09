// Package loadgen plays a workload against OpenAI-compatible endpoints over
// HTTP and measures what a client sees.
//
// Sessions arrive by the plan whatever the servers do (open loop); within a
// session the next question follows the answer and a pause for thought, as a
// person's does. One goroutine holds the schedule; each request has its own
// while it runs, reads its stream event by event, and hands the answer back to
// its conversation. Everything is measured in real time and reported in the
// engines' time, which runs TimeScale times faster.
package loadgen

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/warmpath/warmpath/sim/pace"
	"github.com/warmpath/warmpath/sim/workload"
)

// Config of a run.
type Config struct {
	// Targets are base URLs, e.g. "http://127.0.0.1:8080"; requests alternate
	// between them.
	Targets []string
	// Workload to play, from its first session to its last.
	Workload *workload.Workload
	// TimeScale of the engines. Default: the workload's.
	TimeScale float64
	// Clock is the engines' time where they share it. Default: a clock of its own
	// that runs TimeScale times as fast.
	Clock *pace.Clock
	// SessionHeader carries the session's name. Default x-session-id.
	SessionHeader string
	// Header is added to each request, e.g. Authorization.
	Header http.Header
	// Timeout of one request in real time. Default 60 s.
	Timeout time.Duration
	// Progress, if set, is called about five times a second and once at the
	// end, always from one goroutine.
	Progress func(Progress)
	// OnResult, if set, is called for each request that ended, always from one
	// goroutine.
	OnResult func(Outcome)
}

// Progress of a run.
type Progress struct {
	Done, Failed, InFlight, Total int
	// HitRate so far.
	HitRate float64
	Elapsed time.Duration // real
}

// An Outcome is one request as its client saw it. Durations are engine time.
type Outcome struct {
	Session, Turn, Tenant int
	Target                string
	// Worker that answered, by its x-sim-worker header; "" if none.
	Worker string
	// Attempts upstream as the gateway tells them; 1 if it does not.
	Attempts int
	// Err is the kind of failure: "" for none, "status 503", "timeout",
	// "connection", "broken stream".
	Err          string
	PromptTokens int
	CachedTokens int
	OutputTokens int
	// TTFT is from sending to the first event with content; Total to the end.
	TTFT, Total time.Duration
	// Late is how much after its planned time the request was sent.
	Late time.Duration
}

func (c *Config) setDefaults() error {
	if c.Workload == nil {
		return errors.New("loadgen: no workload")
	}
	if len(c.Targets) == 0 {
		return errors.New("loadgen: no targets: give at least one base URL")
	}
	for i, t := range c.Targets {
		if !strings.HasPrefix(t, "http://") && !strings.HasPrefix(t, "https://") {
			return fmt.Errorf("loadgen: target %q: want a base URL such as http://127.0.0.1:8080", t)
		}
		c.Targets[i] = strings.TrimSuffix(t, "/")
	}
	if c.TimeScale == 0 {
		c.TimeScale = c.Workload.Spec.Fleet.TimeScale
	}
	if !(c.TimeScale > 0) {
		return fmt.Errorf("loadgen: TimeScale is %v: want above 0", c.TimeScale)
	}
	if c.Clock == nil {
		c.Clock = pace.NewClock(c.TimeScale)
	}
	if c.SessionHeader == "" {
		c.SessionHeader = "x-session-id"
	}
	if c.Timeout == 0 {
		c.Timeout = time.Minute
	}
	return nil
}

// A due is a turn to send.
type due struct {
	at           time.Duration // engine time
	conversation *workload.Conversation
	session      int // used if conversation is nil: it starts
}

type schedule []due

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].at < s[j].at }
func (s schedule) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *schedule) Push(x any)        { *s = append(*s, x.(due)) }
func (s *schedule) Pop() any {
	old := *s
	last := old[len(old)-1]
	old[len(old)-1] = due{}
	*s = old[:len(old)-1]
	return last
}

// ended is what a request's goroutine reports.
type ended struct {
	outcome      Outcome
	conversation *workload.Conversation
	more         bool // there is a next turn
}

// Run plays the whole workload and returns the measurements. If ctx ends
// before, requests in flight are cut and the error is ctx's; the result then
// covers what was done.
func Run(ctx context.Context, c Config) (*Result, error) {
	c.Targets = append([]string(nil), c.Targets...)
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	client := newClient(&c)
	defer client.close()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sessions := c.Workload.Sessions
	begin := c.Clock.Now()
	pending := make(schedule, 0, len(sessions))
	for i := range sessions {
		pending = append(pending, due{at: begin + sessions[i].Start, session: i})
	}
	heap.Init(&pending)

	rec := newRecorder(&c)
	done := make(chan ended, 256)
	start := time.Now()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	report := time.NewTicker(200 * time.Millisecond)
	defer report.Stop()
	repaced := make(chan struct{}, 1)
	defer c.Clock.OnChange(func() {
		select {
		case repaced <- struct{}{}:
		default:
		}
	})()
	inFlight, sent := 0, 0
	for len(pending) > 0 || inFlight > 0 {
		for len(pending) > 0 && ctx.Err() == nil {
			now := c.Clock.Now()
			if pending[0].at > now {
				timer.Reset(c.Clock.Until(pending[0].at))
				break
			}
			d := heap.Pop(&pending).(due)
			if d.conversation == nil {
				d.conversation = c.Workload.Start(d.session)
			}
			target := c.Targets[sent%len(c.Targets)]
			sent++
			inFlight++
			late := now - d.at
			go func() { done <- client.play(ctx, target, d.conversation, late) }()
		}
		var wakeUp <-chan time.Time
		if len(pending) > 0 {
			wakeUp = timer.C
		}
		if ctx.Err() != nil && inFlight == 0 {
			break
		}
		select {
		case <-wakeUp:
		case <-repaced:
		case e := <-done:
			inFlight--
			rec.add(e)
			if e.more {
				heap.Push(&pending, due{at: c.Clock.Now() + e.conversation.Think(), conversation: e.conversation})
			}
		case <-report.C:
			if c.Progress != nil {
				c.Progress(rec.progress(inFlight, time.Since(start)))
			}
		}
	}
	elapsed := time.Since(start)
	if c.Progress != nil {
		c.Progress(rec.progress(0, elapsed))
	}
	return rec.result(elapsed, c.Clock.Now()-begin), context.Cause(ctx)
}

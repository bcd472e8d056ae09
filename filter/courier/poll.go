package courier

import (
	"strconv"
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	backoffLeast = 100 * time.Millisecond
	backoffMost  = 5 * time.Second
	// lostAfter is how long after its timeout a call without a callback is
	// given up: its plugin context has gone.
	lostAfter = 2 * time.Second
	// pollGap is the least time a poll takes before the next follows at once.
	// After a quicker answer the next waits for pollRest; where it brought nothing
	// new, after each further one in a row for twice as long, up to a tick: a
	// control service gone wrong cannot make the courier spin.
	pollGap  = 5 * time.Millisecond
	pollRest = 10 * time.Millisecond
)

// poll is the call for table data: one at a time, the long-poll or a range of
// pages.
type poll struct {
	open       bool
	generation uint32 // answers of an earlier one are dropped
	started    int64
	deadline   int64
	notBefore  int64
	failures   uint
	quick      uint   // answers in a row that came within pollGap with nothing new
	resting    bool   // the next waits for notBefore alone
	replica    uint32 // that was asked
}

// startPoll opens the long-poll when nothing else is open or waiting.
func (c *Courier) startPoll(now int64) {
	p := &c.poll
	if p.open && now > p.deadline {
		p.open = false
		c.pollFailed(now, metrics.PollLost)
	}
	if !c.lease.held || p.open || now < p.notBefore || c.update.frame != nil || c.resync.active {
		return
	}
	c.ask = c.lateWrite() || c.ask
	epoch, version := c.meta.Epoch, c.meta.Version
	if !c.meta.Ready || c.ask {
		epoch, version = 0, 0
	}
	path := "/v1/table?epoch=" + strconv.FormatUint(epoch, 10) +
		"&version=" + strconv.FormatUint(version, 10) +
		"&wait_ms=" + strconv.FormatInt(c.config.Control.PollWait.Milliseconds(), 10) +
		"&wire=" + strconv.Itoa(wire.Version)
	c.call(now, c.headers("GET", path), nil, c.pollAnswered)
}

// call asks for table data; the answer goes to done, unless the poll's
// generation has moved on.
func (c *Courier) call(now int64, headers [][2]string, body []byte, done func(status, size int)) {
	p := &c.poll
	p.generation++
	generation := p.generation
	p.open, p.started, p.replica = true, now, c.replica
	p.deadline = now + int64(c.config.Control.Timeout+lostAfter)
	_, status := abi.HTTPCall(c.config.Control.Cluster, headers, body, c.config.Control.Timeout,
		func(_, size, _ int) {
			if c.poll.generation != generation || !c.poll.open {
				return
			}
			c.poll.open = false
			c.lease.looked = false
			done(c.status(), size)
		})
	if status != abi.OK {
		p.open = false
		c.pollFailed(now, metrics.PollInline)
	}
}

func (c *Courier) headers(method, path string) [][2]string {
	h := [][2]string{
		{":method", method},
		{":path", path},
		{":authority", c.authority()},
		{"accept", "application/octet-stream"},
	}
	if c.config.Control.Token != "" {
		h = append(h, [2]string{"authorization", "Bearer " + c.config.Control.Token})
	}
	return h
}

// authority decides where a proxy that hashes sends a call: each gateway keeps to
// one replica of control, and tries another once that one fails.
func (c *Courier) authority() string {
	if c.config.Control.Authority != "" {
		return c.config.Control.Authority
	}
	choice := fingerprint.Hash(c.config.Gateway + "/" + strconv.FormatUint(uint64(c.replica), 10))
	return "warmpath-control-" + strconv.FormatUint(choice, 16)
}

// leave turns to another replica, unless that was done since the failed call
// began. A poll that waits at the old one isn't waited for.
func (c *Courier) leave(replica uint32) {
	if replica != c.replica {
		return
	}
	c.replica++
	if c.poll.open && c.config.Control.Authority == "" {
		c.poll = poll{generation: c.poll.generation + 1, notBefore: c.poll.notBefore, failures: c.poll.failures}
		c.resync.drop()
	}
}

// status is the answer's :status, 0 for an answer without one. A dead cluster
// answers with an ordinary 503, headers and body.
func (c *Courier) status() int {
	value, ok := abi.HeaderString(abi.HTTPCallHeaders, ":status")
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		return 0
	}
	return n
}

// pollAnswered takes the answer of the long-poll.
func (c *Courier) pollAnswered(status, size int) {
	now, version := abi.Now(), c.meta.Version
	switch {
	case !c.lease.held:
		return
	case status == 204:
		c.pollSucceeded()
		c.meta.UpdatedUnixNanos = now
		c.writeMeta()
	case status == 200:
		frame, ok := c.body(size)
		if !ok || !c.takeUpdate(frame, now) {
			c.pollFailed(now, metrics.PollBody)
			return
		}
		c.pollSucceeded()
		c.work(now)
	case status == 0:
		c.pollFailed(now, metrics.PollDead)
		return
	default:
		c.pollRefused(now, status)
		return
	}
	quick := now-c.poll.started < int64(pollGap)
	if !quick || c.meta.Version != version {
		c.poll.quick = 0
	}
	if c.poll.resting = quick; quick {
		c.poll.notBefore = max(c.poll.notBefore, now+int64(min(pollRest<<min(c.poll.quick, 10), c.config.Tick)))
		if c.meta.Version == version {
			c.poll.quick++
		}
	} else {
		now = abi.Now()
		c.startPoll(now)
	}
	c.pace(now)
}

// body takes the body of the poll's answer out of the host's buffer, which is
// gone after the callback. The next answer overwrites it: none is asked for
// before the work on this one, over several slices, is done. A base of a
// million entries thus passes through one block and leaves no garbage.
func (c *Courier) body(size int) ([]byte, bool) {
	if size < wire.HeaderBytes || size > maxAnswer {
		return nil, false
	}
	if size <= keptAnswer {
		c.reply.Trim(keptAnswer)
	}
	frame, status := abi.Buffer(abi.HTTPCallBody, 0, size, &c.reply)
	return frame, status == abi.OK && len(frame) == size
}

const (
	// maxAnswer is a few times what control sends (wire.MaxBody): a roster of
	// thousands of workers with everything else in one frame fits.
	maxAnswer = 1 << 20
	// keptAnswer is the size of the block that stays allocated between answers.
	keptAnswer = 64 << 10
)

// pollSucceeded ends a row of failures.
func (c *Courier) pollSucceeded() {
	if c.poll.failures >= tellAfter {
		abi.Log(abi.LogInfo, "warmpath: control answers again")
	}
	c.poll.failures = 0
}

// pollRefused is a failure by an answer's status.
func (c *Courier) pollRefused(now int64, status int) {
	c.pollStatus = status
	c.pollFailed(now, metrics.PollStatus)
}

const tellAfter = 3

// tellPoll says what is wrong with the way to control, after a few failures
// in a row and then ever more seldom.
func (c *Courier) tellPoll(kind int) {
	n := c.poll.failures
	if n != tellAfter && (n < 32 || n&(n-1) != 0) {
		return
	}
	what := "doesn't answer; is the control service running, and is the cluster's address right?"
	switch {
	case kind == metrics.PollInline:
		what = "can't be called; does the proxy have a cluster of that name?"
	case kind == metrics.PollBody:
		what = "answers with what this module can't read; is that the control service, and of the same version?"
	case kind == metrics.PollStatus && (c.pollStatus == 401 || c.pollStatus == 403):
		what = "refuses the token (" + strconv.Itoa(c.pollStatus) + "); set control.token in the plugin configuration as in the control service's."
	case kind == metrics.PollStatus && c.pollStatus != 503:
		what = "answers " + strconv.Itoa(c.pollStatus) + "; is that the control service?"
	}
	abi.Log(abi.LogWarn, "warmpath: control at cluster "+strconv.Quote(c.config.Control.Cluster)+" "+what+
		" Requests go on by the last table ("+strconv.FormatUint(uint64(n), 10)+" failures in a row)")
}

// pollFailed waits longer after every failure, with jitter, so that the
// gateways of a fleet don't return together.
func (c *Courier) pollFailed(now int64, kind int) {
	c.metrics.Inc(metrics.PollFailures, kind)
	if kind != metrics.PollStatus || c.pollStatus >= 500 {
		c.leave(c.poll.replica)
	}
	c.resync.drop()
	c.poll.notBefore = now + int64(c.backoff(c.poll.failures))
	c.poll.failures++
	c.tellPoll(kind)
}

func (c *Courier) backoff(failures uint) time.Duration {
	d := min(backoffLeast<<min(failures, 10), backoffMost)
	return d/2 + time.Duration(c.rng.Uint64()%uint64(d))
}

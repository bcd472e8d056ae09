package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/heartbeat"
)

const (
	maxPage   = 8 << 20
	maxAnswer = 64 << 10
)

// beat reads the engine and sends one heartbeat. told is true when the control
// service took it, left is how many requests the engine has; 0 also when it
// doesn't answer: then it has none that a wait could save.
func (a *Agent) beat(ctx context.Context, draining bool) (told bool, left int) {
	load, read, err := a.load(ctx)
	if ctx.Err() != nil {
		return false, 0
	}
	a.engineIs(err)
	h := a.heartbeat(load, read, time.Now())
	h.Draining = h.Draining || draining
	err = a.send(ctx, h)
	if ctx.Err() != nil {
		return false, 0
	}
	a.controlIs(err, time.Now())
	switch {
	case a.cfg.Guard != nil:
		left = a.cfg.Guard.InFlight()
	case load != nil:
		left = load.Running + load.Waiting
	}
	return err == nil, left
}

// heartbeat is what load says, nil for an engine that doesn't answer.
func (a *Agent) heartbeat(load *discovery.Load, read, now time.Time) *heartbeat.Heartbeat {
	a.sequence = max(a.sequence+1, uint64(now.UnixMilli()))
	h := &heartbeat.Heartbeat{
		Worker: a.worker, Sequence: a.sequence,
		Engine: heartbeat.Engine{MaxRunning: a.cfg.MaxRunning, QueueLimit: a.cfg.QueueLimit},
	}
	if load == nil {
		return h
	}
	h.StartedMillis = load.StartedMillis
	h.Engine.CapacityTokens, h.Engine.BlockTokens = load.Facts.CapacityTokens, load.Facts.BlockTokens
	if told := load.Facts.Caching; told != discovery.CachingNotTold {
		on := told == discovery.CachingOn
		h.Engine.PrefixCaching = &on
	}
	if load.Known {
		h.Load = &heartbeat.Load{Age: now.Sub(read), Running: load.Running, Waiting: load.Waiting, KVShare: load.KVShare}
	}
	if a.cfg.Guard != nil {
		a.addQueue(h)
	}
	h.Draining = load.Asleep
	if load.Asleep && !a.asleep {
		h.Cache = &heartbeat.Cache{Cleared: true}
	}
	a.asleep = load.Asleep
	h.Eviction = a.notice(now)
	return h
}

// notice is what there is to say of evictions: one that goes on or comes, or
// that the last one said is over.
func (a *Agent) notice(now time.Time) *heartbeat.Eviction {
	n := a.watch.notice(now)
	before := a.noticed
	if a.noticed = n.Active(); !n.Active() && !before {
		return nil
	}
	if !before {
		a.log.Warn("mass eviction", "worker", a.worker, "begins_in", n.In, "share", n.Share, "why", n.Why)
	}
	return &heartbeat.Eviction{In: n.In, For: n.For, Share: n.Share, Reason: n.Why}
}

func (a *Agent) scrape(ctx context.Context) (*discovery.Load, error) {
	status, page, err := a.get(ctx, a.cfg.Engine+a.cfg.MetricsPath)
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return nil, fmt.Errorf("%s answers %d (give the engine's token with --engine-token-env)", a.cfg.MetricsPath, status)
	case status == http.StatusNotFound:
		return nil, fmt.Errorf("%s answers 404 (SGLang needs --enable-metrics; --metrics-path names another path)", a.cfg.MetricsPath)
	case status != http.StatusOK:
		return nil, fmt.Errorf("%s answers %d", a.cfg.MetricsPath, status)
	}
	l, err := discovery.ParseRank(page, discovery.RankOf(a.worker))
	if err != nil {
		return nil, err
	}
	if !l.Known {
		return &l, errors.New("the metrics page has no load of a known engine (vLLM, SGLang)")
	}
	return &l, nil
}

func (a *Agent) send(ctx context.Context, h *heartbeat.Heartbeat) error {
	body, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("encode heartbeat: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.tell, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if a.cfg.Token != nil {
		token, err := a.cfg.Token()
		if err != nil {
			return err
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
	}
	status, answer, err := do(a.control, req, maxAnswer)
	if err != nil {
		return fmt.Errorf("not reached: %w", err)
	}
	return refusal(status, answer)
}

// refusal is nil for an answer that took the heartbeat.
func refusal(status int, body []byte) error {
	if status == http.StatusOK {
		var answer struct {
			Applied *bool  `json:"applied"`
			Reason  string `json:"reason"`
		}
		if err := json.Unmarshal(body, &answer); err != nil || answer.Applied == nil {
			return errors.New("answers 200, but not as a control service does (is --control right?)")
		}
		if !*answer.Applied {
			return fmt.Errorf("not taken: %s (does another agent speak for this worker?)", answer.Reason)
		}
		return nil
	}
	var problem struct {
		Error struct{ Code, Message, Remedy string } `json:"error"`
	}
	switch _ = json.Unmarshal(body, &problem); {
	case status == http.StatusUnauthorized:
		return errors.New("refuses the token (give the one it was started with, by --token-file or the environment)")
	case problem.Error.Code == "unknown_worker":
		return fmt.Errorf("%s (--worker is how the list names this engine)", problem.Error.Message)
	case problem.Error.Message != "":
		return fmt.Errorf("answers %d: %s (%s)", status, problem.Error.Message, problem.Error.Remedy)
	}
	return fmt.Errorf("answers %d", status)
}

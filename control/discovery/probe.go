package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// HealthConfig sets how workers are probed. Zero values take the defaults.
type HealthConfig struct {
	Path         string        // "/health"
	MetricsPath  string        // "/metrics"; "-" turns scraping off
	IntervalUp   time.Duration // 1 s, less up to a tenth of jitter
	IntervalDown time.Duration // 500 ms, less up to a fifth of jitter
	Metrics      time.Duration // between two scrapes of a worker that is up, less up to a tenth of jitter; see scrapeEvery
	Timeout      time.Duration // of one request; 1 s
	Failures     int           // failures in a row that mark a worker down; 2
	// Token is sent as a bearer token, for engines that guard their endpoints.
	Token string
}

func (c HealthConfig) withDefaults() HealthConfig {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	if c.Path == "" {
		c.Path = "/health"
	}
	if c.MetricsPath == "" {
		c.MetricsPath = "/metrics"
	}
	def(&c.IntervalUp, time.Second)
	def(&c.IntervalDown, 500*time.Millisecond)
	def(&c.Timeout, time.Second)
	if c.Failures <= 0 {
		c.Failures = 2
	}
	return c
}

// DefaultMetrics is the time between two scrapes of a worker where nothing else is set and workers
// are few. A scrape takes 0.3 ms of CPU, the answering server included (BenchmarkScrape), and what gateways know of a
// worker's queue is half of this older in the mean.
const DefaultMetrics = 200 * time.Millisecond

// scrapesPerSecond bounds what all workers take by default: 0.4 of a core. Each of MaxWorkers is
// asked within a second all the same: admission counts on that.
const scrapesPerSecond = 1250

// scrapeEvery is the time between two scrapes of one of n workers: what is set, else
// DefaultMetrics, and longer with more than 250 workers.
func (c *HealthConfig) scrapeEvery(n int) time.Duration {
	if c.Metrics > 0 {
		return c.Metrics
	}
	return max(DefaultMetrics, time.Duration(n)*time.Second/scrapesPerSecond)
}

const maxMetricsBytes = 8 << 20

// prober asks one worker over HTTP.
type prober struct {
	cfg    HealthConfig
	client *http.Client
}

func newProber(cfg HealthConfig, transport http.RoundTripper) *prober {
	return &prober{cfg: cfg, client: &http.Client{
		Transport: transport,
		// A redirect is somebody else's answer.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// round checks health, and metrics when asked for and the worker is well.
// A failed scrape makes nobody ill.
func (p *prober) round(ctx context.Context, address string, metrics bool) Observation {
	o := p.health(ctx, address)
	if o.OK && metrics && p.cfg.MetricsPath != "-" {
		p.scrape(ctx, address, &o)
	}
	return o
}

func (p *prober) health(ctx context.Context, address string) Observation {
	status, _, err := p.get(ctx, address, p.cfg.Path, 4<<10)
	switch {
	case timedOut(err):
		return Observation{Reason: fmt.Sprintf("health: %s didn't answer within %v (health.timeout)", p.cfg.Path, p.cfg.Timeout)}
	case err != nil:
		return Observation{Refused: errors.Is(err, syscall.ECONNREFUSED), Reason: "health: " + shortError(err)}
	case status/100 == 2:
		return Observation{OK: true}
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		// The process lives; it only doesn't know us.
		return Observation{OK: true, Reason: fmt.Sprintf("health: %s answers %d (set health.token)", p.cfg.Path, status)}
	case status == http.StatusNotFound:
		return Observation{Reason: fmt.Sprintf("health: %s answers 404 (set health.path to the engine's health path)", p.cfg.Path)}
	default:
		return Observation{Reason: fmt.Sprintf("health: %s answers %d", p.cfg.Path, status)}
	}
}

func (p *prober) scrape(ctx context.Context, address string, o *Observation) {
	status, page, err := p.get(ctx, address, p.cfg.MetricsPath, maxMetricsBytes)
	switch {
	case err != nil:
	case status != http.StatusOK:
		err = fmt.Errorf("%s answers %d", p.cfg.MetricsPath, status)
	case len(page) == maxMetricsBytes:
		err = fmt.Errorf("%s is over %d bytes", p.cfg.MetricsPath, maxMetricsBytes-1)
	default:
		var l Load
		if l, err = ParseRank(page, RankOf(address)); err == nil {
			o.Load = &l
			return
		}
	}
	o.MetricsProblem = shortError(err)
}

func (p *prober) get(ctx context.Context, address, path string, limit int64) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+Endpoint(address)+path, nil)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("User-Agent", "warmpath-control")
	if p.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+p.cfg.Token)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil {
		return 0, nil, fmt.Errorf("read body: %w", err)
	}
	return resp.StatusCode, body, nil
}

func timedOut(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// shortError drops the method and URL that net/http puts around an error.
func shortError(err error) string {
	if timedOut(err) {
		return "timeout"
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	s := err.Error()
	return s[:min(len(s), 200)]
}

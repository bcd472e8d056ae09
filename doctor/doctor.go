// Package doctor looks at an installation from one end to the other and says
// what to change.
//
// A diagnosis goes like this: the control service is asked for its status, which
// names the workers; each engine is asked for its health, its settings and where
// it publishes events, and with Options.Probe for three small completions; an
// Envoy's configuration is read from its admin interface and held against what
// the module needs; at last a request goes through the proxy, and its traces
// are looked for at both ends. Everything found becomes a [Check]. Nothing is
// changed anywhere.
package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/discovery"
)

// Status of a check.
type Status string

// Statuses. Fail: requests suffer, or routing can't work. Warn: it works, and
// not as well as it could; or nobody can tell.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Check is one thing that was looked at.
type Check struct {
	// Name is stable: area.what, such as engine.prefix_caching.
	Name string `json:"name"`
	// Target is what was looked at: an address, a cluster, a route; "" for the
	// area itself.
	Target string `json:"target,omitempty"`
	Status Status `json:"status"`
	Seen   string `json:"seen"`
	// Remedy says what to change; "" when nothing is to be.
	Remedy string `json:"remedy,omitempty"`
}

// Options say where to look. What is left empty is left out, except that without
// Engines those of the control service's list are looked at.
type Options struct {
	Control string // URL
	Token   string
	Engines []string // URLs
	// EngineToken is sent to engines, and through the proxy, as a bearer token.
	EngineToken string
	Proxy       string // URL
	EnvoyAdmin  string // URL
	// Model to ask for; by default the first that the engine or proxy lists.
	Model string
	// Probe sends three completions of a few tokens to every engine.
	Probe bool
	// Timeout of each call. 10 s.
	Timeout time.Duration
	// Settle is how long the traces of a request through the proxy may take to
	// arrive. 5 s.
	Settle time.Duration
}

// checkedAtOnce engines are asked side by side.
const checkedAtOnce = 16

// Run looks at everything that o names.
func Run(ctx context.Context, o Options) []Check {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Settle == 0 {
		o.Settle = 5 * time.Second
	}
	d := &diagnosis{o: o, client: &http.Client{Timeout: o.Timeout}}
	defer d.client.CloseIdleConnections()
	var status *api.Status
	if o.Control != "" {
		status = d.control(ctx)
	}
	for _, e := range d.engines(ctx, status) {
		d.checks = append(d.checks, e...)
	}
	var pools []Pool
	if status != nil {
		pools = d.pools(ctx)
	}
	if o.EnvoyAdmin != "" {
		d.envoy(ctx, pools)
	}
	if o.Proxy != "" {
		d.proxy(ctx, status)
	}
	return d.checks
}

// Failed tells whether any check did.
func Failed(checks []Check) bool {
	for i := range checks {
		if checks[i].Status == Fail {
			return true
		}
	}
	return false
}

// report collects checks.
type report struct{ checks []Check }

func (r *report) add(status Status, name, target, seen, remedy string) {
	r.checks = append(r.checks, Check{Name: name, Target: target, Status: status, Seen: seen, Remedy: remedy})
}

func (r *report) ok(name, target, format string, args ...any) {
	r.add(OK, name, target, fmt.Sprintf(format, args...), "")
}

func (r *report) warn(name, target, seen, remedy string) { r.add(Warn, name, target, seen, remedy) }
func (r *report) fail(name, target, seen, remedy string) { r.add(Fail, name, target, seen, remedy) }

type diagnosis struct {
	report
	o      Options
	client *http.Client
}

// maxAnswer bounds what is read of one answer: a configuration dump of a mesh is
// the largest.
const maxAnswer = 64 << 20

// call sends a request and reads the whole answer. Only a body makes it a POST.
func (d *diagnosis) call(ctx context.Context, base, path, token string, body []byte) (int, http.Header, []byte, error) {
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("User-Agent", "warmpath-doctor")
	resp, err := d.client.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, resp.Header, answer, err
}

// fetch is call where nothing but a 200 will do: anything else is a refusal.
func (d *diagnosis) fetch(ctx context.Context, base, path, token string, body []byte) ([]byte, error) {
	code, _, answer, err := d.call(ctx, base, path, token, body)
	if err == nil && code != http.StatusOK {
		err = &refusal{code, path, text(answer)}
	}
	return answer, err
}

// get asks for JSON.
func (d *diagnosis) get(ctx context.Context, base, path, token string, into any) error {
	body, err := d.fetch(ctx, base, path, token, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the answer of %s is no JSON of the expected kind: %w", path, err)
	}
	return nil
}

// models asks an engine, or a proxy, which models it serves.
func (d *diagnosis) models(ctx context.Context, base string) (names []string, err error) {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	err = d.get(ctx, base, "/v1/models", d.o.EngineToken, &list)
	for _, m := range list.Data {
		names = append(names, m.ID)
	}
	return names, err
}

// refusal is an answer other than 200.
type refusal struct {
	code int
	path string
	body string
}

func (r *refusal) Error() string { return fmt.Sprintf("%s answers %d %s", r.path, r.code, r.body) }

// answered returns the status code of a refusal, 0 for any other error.
func answered(err error) int {
	var r *refusal
	if errors.As(err, &r) {
		return r.code
	}
	return 0
}

// text is the beginning of an answer, on one line.
func text(body []byte) string {
	s := strings.Join(strings.Fields(string(body)), " ")
	return s[:min(len(s), 200)]
}

// engines looks at every engine and returns their checks in order.
func (d *diagnosis) engines(ctx context.Context, status *api.Status) [][]Check {
	urls := d.o.Engines
	listed, ranked := map[string]*api.Worker{}, map[string]int{}
	if status != nil {
		for i := range status.Workers {
			w := &status.Workers[i]
			url := "http://" + discovery.Endpoint(w.Address)
			if discovery.RankOf(w.Address) >= 0 {
				ranked[url]++
			}
			if listed[url] != nil {
				continue
			}
			listed[url] = w
			if len(d.o.Engines) == 0 {
				urls = append(urls, url)
			}
		}
	}
	out := make([][]Check, len(urls))
	var group errgroup.Group
	group.SetLimit(checkedAtOnce)
	for i, url := range urls {
		url = strings.TrimSuffix(url, "/")
		group.Go(func() error {
			e := engine{diagnosis: &diagnosis{o: d.o, client: d.client}, url: url, name: strings.TrimPrefix(url, "http://"), listed: listed[url], ranked: ranked[url]}
			e.examine(ctx)
			out[i] = e.checks
			return nil
		})
	}
	_ = group.Wait()
	return out
}

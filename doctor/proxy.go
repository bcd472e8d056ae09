package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warmpath/warmpath/control/api"
)

// nonceOf makes a prompt that was not sent before.
func nonceOf(target string) string {
	return strconv.FormatInt(time.Now().UnixNano(), 36) + " of " + target
}

// proxy sends one request through the proxy and looks for its traces.
func (d *diagnosis) proxy(ctx context.Context, before *api.Status) {
	target := d.o.Proxy
	model := d.o.Model
	if model == "" {
		names, err := d.models(ctx, target)
		if err == nil && len(names) == 0 {
			err = errors.New("no model is listed")
		}
		if err != nil {
			d.fail("proxy.reachable", target, "GET /v1/models: "+err.Error(), "start the proxy, or give its address; --model names a model where the list can't be had")
			return
		}
		model = names[0]
	}
	stats := d.moduleStats(ctx)
	code, header, body, err := d.call(ctx, target, completions, d.o.EngineToken, probePrompt(model, false, nonceOf(target)))
	switch {
	case err != nil:
		d.fail("proxy.reachable", target, err.Error(), "start the proxy, or give its address; a request that hangs hints at a missing allow_on_headers_stop_iteration (--envoy-admin)")
		return
	case code != http.StatusOK:
		d.fail("proxy.answer", target, fmt.Sprintf("a chat completion of %s is answered %d %s", model, code, text(body)), "the message says who refused; the access log has the route and its flags")
		return
	}
	d.ok("proxy.answer", target, "a chat completion of %s is answered 200", model)
	worker := header.Get("x-warmpath-worker")
	fresh, settled := d.settle(ctx, before, stats)
	switch {
	case worker != "":
		d.ok("proxy.module", target, "x-warmpath-worker: %s", worker)
	case settled:
		d.ok("proxy.module", target, "the request was reported by the module")
	case before == nil && stats == nil:
		d.warn("proxy.module", target, "nothing shows whether the module saw the request", "give --control or --envoy-admin too, or set expose_worker in the module's configuration")
	default:
		d.fail("proxy.module", target, "nobody reported the request", "see that the filter warmpath stands before the router of this listener, and that the path is one of an LLM API")
	}
	d.fallbacks(stats, fresh)
}

// settle waits for the request to be reported: to the control service, and in
// the module's counters.
func (d *diagnosis) settle(ctx context.Context, before *api.Status, stats map[string]float64) (fresh map[string]float64, reported bool) {
	deadline := time.Now().Add(d.o.Settle)
	for {
		fresh = d.moduleStats(ctx)
		var now api.Status
		if before != nil && d.get(ctx, d.o.Control, "/v1/status", d.o.Token, &now) == nil {
			reported = now.Counters.Dispatches > before.Counters.Dispatches
		} else if before == nil && stats != nil {
			reported = requests(fresh) > requests(stats)
		}
		if reported || before == nil && stats == nil || time.Now().After(deadline) {
			return fresh, reported
		}
		select {
		case <-ctx.Done():
			return fresh, reported
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func requests(stats map[string]float64) (n float64) {
	for name, v := range stats {
		if strings.HasPrefix(name, "requests.") {
			n += v
		}
	}
	return n
}

// statPrefix is what Envoy puts before the module's own names.
const statPrefix = "wasmcustom.warmpath."

// moduleStats are the module's counters in Envoy, nil without an admin address.
func (d *diagnosis) moduleStats(ctx context.Context) map[string]float64 {
	if d.o.EnvoyAdmin == "" {
		return nil
	}
	page, err := d.fetch(ctx, d.o.EnvoyAdmin, "/stats?filter=wasmcustom", "", nil)
	if err != nil {
		return nil
	}
	out := map[string]float64{}
	for line := range strings.SplitSeq(string(page), "\n") {
		name, value, ok := strings.Cut(line, ": ")
		name, ours := strings.CutPrefix(name, statPrefix)
		if v, err := strconv.ParseFloat(value, 64); ok && ours && err == nil {
			out[name] = v
		}
	}
	return out
}

// whyFallback tells what to do where the proxy's own balancer decided.
var whyFallback = map[string]string{
	"no_table":          "the module has no table yet: see its poll_failures and whether control.cluster leads to the control service",
	"no_pool":           "the policy maps no pool to this model: name it under models",
	"observe":           "the pool observes; set mode: route to steer",
	"off":               "the fleet is switched off; warmpath on takes it back",
	"no_worker":         "the table lists no worker for the pool: see control.workers",
	"panic":             "a defect: the log of the proxy has the panic, please report it",
	"endpoint_unknown":  "the cluster doesn't list the worker that was chosen: let the cluster's endpoints and the worker list come from the same source",
	"endpoint_fallback": "the proxy went elsewhere than told: the cluster needs override_host with x-gateway-destination-endpoint (--envoy-admin checks it)",
}

// fallbacks tells whether the choice was honoured.
func (d *diagnosis) fallbacks(before, after map[string]float64) {
	if before == nil || after == nil {
		return
	}
	found := false
	for _, name := range slices.Sorted(maps.Keys(after)) {
		reason, ok := strings.CutPrefix(name, "fallback.")
		if !ok || after[name] <= before[name] {
			continue
		}
		found = true
		d.warn("proxy.steering", d.o.Proxy, "the proxy's own balancer decided: "+reason, whyFallback[reason])
	}
	if !found {
		d.ok("proxy.steering", d.o.Proxy, "the choice was honoured")
	}
}

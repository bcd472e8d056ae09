package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/warmpath/warmpath/control/api"
)

// control looks at the control service. It returns nil when there is no status.
func (d *diagnosis) control(ctx context.Context) *api.Status {
	target := d.o.Control
	var s api.Status
	err := d.get(ctx, target, "/v1/status", d.o.Token, &s)
	switch {
	case answered(err) == http.StatusUnauthorized:
		d.fail("control.reachable", target, "it answers, and refuses the token", "give the token it was started with (--token-env names the variable)")
		return nil
	case err != nil:
		d.fail("control.reachable", target, err.Error(), "start it, or give its address with --control; gateways go on with the table they have meanwhile")
		return nil
	}
	d.ok("control.reachable", target, "version %s, %d workers, %d gateways, %d entries", cmp.Or(s.Version, "unknown"), len(s.Workers), len(s.Gateways), s.Table.Entries)
	d.readiness(ctx, target)
	if s.Off {
		d.warn("control.mode", target, "the fleet is switched off: nothing is steered", "warmpath on, when the reason for warmpath off is gone")
	}
	d.state(target, &s)
	if s.Table.Dropped > 0 {
		d.warn("control.table", target, fmt.Sprintf("%d entries had no room in the table, the least valuable ones", s.Table.Dropped), "raise table.max_bits if the proxies have the memory")
	}
	for _, source := range s.Sources {
		if source.Error != "" {
			d.warn("control.sources", source.Name, source.Error, "the last list is kept; mend the source of the worker list")
		}
		for _, left := range source.Reasons {
			d.warn("control.sources", source.Name, "left out: "+left, "mend what it names, and the worker joins")
		}
		for _, setting := range source.Ignored {
			d.warn("control.sources", source.Name, setting, "correct the annotation or label, or take it away")
		}
	}
	d.gateways(&s)
	d.workers(&s)
	d.tokenizers(&s)
	d.replicas(ctx, s.Cluster)
	return &s
}

// oldSave is the age, in seconds, at which a save is missed: three times the
// default interval.
const oldSave = 90.0

// state looks at what a restart would find.
func (d *diagnosis) state(target string, s *api.Status) {
	saved := s.Saved
	switch {
	case saved == nil:
		seen := "no state file: a restart forgets who holds what"
		if s.Learning {
			seen += ", as this one did, and learns anew"
		}
		d.warn("control.state", target, seen, "give control a state_file")
	case saved.Error != "":
		d.fail("control.state", target, saved.Error, "see that the folder is there, writable and not full")
	case saved.Age < 0:
		d.ok("control.state", target, "nothing saved yet, it has just started")
	case saved.Age > oldSave:
		d.warn("control.state", target, fmt.Sprintf("saved %.0f s ago", saved.Age), "more than state_interval: the disk is slow, or the interval long")
	default:
		d.ok("control.state", target, "%.1f MB saved in %.2f s, %.0f s ago", float64(saved.Bytes)/1e6, saved.Seconds, saved.Age)
	}
}

func (d *diagnosis) readiness(ctx context.Context, target string) {
	var r api.Readiness
	if err := d.get(ctx, target, "/readyz", "", &r); err != nil {
		d.fail("control.ready", target, err.Error(), "wait until every worker was probed once; gateways get no table before")
		return
	}
	d.ok("control.ready", target, "%d of %d workers are up", r.Healthy, r.Total)
}

// staleGateway is the age at which a gateway's reports are missed.
const staleGateway = 7.0

func (d *diagnosis) gateways(s *api.Status) {
	if len(s.Gateways) == 0 {
		d.fail("control.gateways", "", "no gateway has reported: nothing is routed by this service",
			"see that the module is loaded (--envoy-admin), that its control.cluster leads here and that its control.token is this service's")
	}
	for _, g := range s.Gateways {
		switch {
		case g.Age > staleGateway:
			d.warn("control.gateways", g.Name, fmt.Sprintf("silent for %.0f s", g.Age), "if it still runs: look at its poll_failures, and whether it reaches this service")
		case g.TableEpoch != s.Table.Epoch:
			d.warn("control.gateways", g.Name, "its table is of another epoch", "wait some seconds; if it stays, look at its poll_failures")
		default:
			d.ok("control.gateways", g.Name, "%d VMs, table version %d of %d, %d batches failed since its start", g.VMs, g.TableVersion, s.Table.Version, g.FailedBatches)
		}
	}
}

func (d *diagnosis) workers(s *api.Status) {
	if len(s.Workers) == 0 {
		d.fail("control.workers", "", "the worker list is empty", "fill workers_file, a discovery source, or PUT /v1/workers")
	}
	for i := range s.Workers {
		w := &s.Workers[i]
		switch {
		case strings.HasPrefix(w.Reason, "pool "):
			d.fail("control.workers", w.Address, w.Reason, "name the pool in the policy, or another one in the worker list")
		case w.State != "healthy" && w.State != "draining":
			d.fail("control.workers", w.Address, w.State+": "+w.Reason, "see that the engine runs and that the control service reaches it")
		case len(w.Degraded) > 0:
			d.warn("control.workers", w.Address, strings.Join(w.Degraded, "; "), "the reasons say what is missing; docs/operations.md has each")
		default:
			seen := fmt.Sprintf("%s, truth from %s, %d entries, trust %.2f", w.State, w.Truth, w.Entries, w.Trust)
			d.add(OK, "control.workers", w.Address, seen, strings.Join(w.Hints, "; "))
		}
	}
}

// tokenizers tells of the pools' tokens, and of the comparison with each engine's
// that the control service makes (package parity).
func (d *diagnosis) tokenizers(s *api.Status) {
	for _, t := range s.Tokenizers {
		if t.Mode == "exact" {
			d.ok("tokenizer.mode", t.Pool, "exact, template %s", t.Template)
		} else {
			d.warn("tokenizer.mode", t.Pool, "approximate: "+t.Reason, "fingerprints are over text until this is settled; KV events can't be followed")
		}
		for _, p := range t.Workers {
			switch p.Outcome {
			case "verified", "tokens_verified":
				d.ok("tokenizer.parity", p.Worker, "%d samples, %d tokens are the engine's (%s)", p.Compared, p.Tokens, p.Outcome)
			case "differs":
				seen := "the engine has other tokens"
				if p.Difference != nil {
					seen = fmt.Sprintf("other tokens in sample %q from token %d on", p.Difference.Sample, p.Difference.Position)
				}
				d.fail("tokenizer.parity", p.Worker, seen, "compile the vocabulary of the model that it serves, and name its template; warmpath tokenizer verify shows the difference")
			default:
				d.warn("tokenizer.parity", p.Worker, p.Outcome+": "+p.Reason, "let the control service reach the engine's /tokenize")
			}
		}
	}
}

// Pool is one of the policy's.
type Pool struct {
	Name string
	// Requested: its hot prefixes are copied by requests alone, as it has no tokenizer or
	// copy_slice_tokens is 0.
	Requested bool
}

// pools are the policy's.
func (d *diagnosis) pools(ctx context.Context) (pools []Pool) {
	var document struct {
		Pools []struct {
			Name      string           `json:"name"`
			Mode      string           `json:"mode"`
			Tokenizer *json.RawMessage `json:"tokenizer"`
			Policy    struct {
				CopySlice *int `json:"copy_slice_tokens"`
			} `json:"policy"`
		} `json:"pools"`
	}
	if err := d.get(ctx, d.o.Control, "/v1/policy", d.o.Token, &document); err != nil {
		d.warn("control.policy", d.o.Control, err.Error(), "the routes of pools are not checked")
		return nil
	}
	for _, p := range document.Pools {
		slice := p.Policy.CopySlice
		pools = append(pools, Pool{Name: p.Name, Requested: p.Tokenizer == nil || slice != nil && *slice == 0})
		if p.Mode == "observe" {
			d.warn("control.mode", p.Name, "the pool observes: it computes and steers nothing", "set mode: route when the figures please you")
		}
	}
	return pools
}

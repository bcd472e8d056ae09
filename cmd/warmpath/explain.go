package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/body"
	"github.com/warmpath/warmpath/filter/fleet"
	"github.com/warmpath/warmpath/filter/plugin"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/route"
)

// maxExplainedBody is what a gateway reads of a body by default.
const maxExplainedBody = 4 << 20

func explainCommand() *cobra.Command {
	var o explainOptions
	var file, path, tokenEnv, gateway string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain --body FILE",
		Short: "Show how a request would be routed now, and why",
		Long: `Reads a request's body, asks a running control service for table, workers, loads and
policy as a gateway does, and decides with the module's own code. Printed are the
prompt's length, its checkpoints and who holds them, every worker with what it was
judged by (or why it was left out), and the choice. Nothing is sent anywhere else and
nothing changes.

What a gateway knows beyond this is its own: requests that it has sent since its last
report, and workers that have just failed there. --sent ADDRESS=AGO adds one with the
same prompt that the gateway itself sent to a worker a moment ago. A rule that looks at a
part of the workers draws here by --seed and there anew for every request; where the draw matters,
"chosen" says how many of 200 draws choose each worker.

--gateway sends the request to a running gateway instead, which serves it, and shows what that
one knew of each worker and made of it. It has to explain: warmpath gateway --explain, or
"explain": true in the configuration of the module in Envoy.

--save keeps all that was asked for in a file, to explain the same moment later or
elsewhere with --snapshot: any request, not only this one.`,
		Example: `  warmpath explain --body request.json
  warmpath explain --body request.json --save then.zip
  warmpath explain --body other.json --snapshot then.zip
  warmpath explain --body - --control http://10.0.0.5:8780 --pool chat --json < request.json
  warmpath explain --body request.json --endpoint /v1/messages --session alice
  warmpath explain --body request.json --gateway http://127.0.0.1:8080`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var known bool
			if o.endpoint, known = body.Match(path); !known || !o.endpoint.HasBody() {
				return fmt.Errorf("--endpoint %q has no prompt that the module reads; give the path of the request, such as /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages or /v1/embeddings", path)
			}
			raw, err := readRequest(cmd, file)
			if err != nil {
				return err
			}
			if o.save != "" && o.snapshot != "" || o.snapshot != "" && cmd.Flags().Changed("control") {
				return errors.New("--snapshot stands in for a control service: leave --control and --save away")
			}
			if gateway != "" {
				for _, other := range []string{"control", "snapshot", "save", "sent", "pool", "seed"} {
					if cmd.Flags().Changed(other) {
						return fmt.Errorf("--gateway asks a gateway that decides by itself: leave --%s away", other)
					}
				}
				e, err := explainLive(cmd, raw, gateway, path, o.session)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd, e)
				}
				return e.print(cmd.OutOrStdout())
			}
			o.control.token = os.Getenv(tokenEnv)
			o.control.tokenEnv = tokenEnv
			e, err := explain(cmd, raw, &o)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, e)
			}
			return e.print(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "body", "", "`file` with the request's JSON body, - for standard input")
	f.StringVar(&path, "endpoint", "/v1/chat/completions", "path of the request")
	o.control.url = defaultControl
	f.Var((*urlValue)(&o.control.url), "control", "control service")
	f.Var((*urlValue)(&gateway), "gateway", "running gateway that explains: the request is sent there and served")
	f.StringVar(&tokenEnv, "token-env", "WARMPATH_TOKEN", "environment variable with the bearer token")
	f.StringVar(&o.pool, "pool", "", "pool to route in; default: the one that serves the body's model")
	f.StringVar(&o.session, "session", "", "value of the session header; default: prompt_cache_key or user of the body")
	f.StringVar(&o.sent, "sent", "", "`ADDRESS=AGO`: decide as a gateway that itself sent the same prompt to that worker so long ago, such as 10.0.0.5:8000=40ms (it remembers for 2s)")
	f.Uint64Var(&o.seed, "seed", 1, "of what the rule draws by chance")
	f.DurationVar(&o.control.timeout, "timeout", 30*time.Second, "end of one call to the control service")
	f.StringVar(&o.save, "save", "", "keep table, workers, loads, policy and vocabularies in this `file` (zip)")
	f.StringVar(&o.snapshot, "snapshot", "", "decide by a `file` that --save made, as of then, instead of a running control service")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

type explainOptions struct {
	control        controlService
	endpoint       body.Endpoint
	pool, session  string
	seed           uint64
	save, snapshot string
	sent           string // ADDRESS=AGO
}

func readRequest(cmd *cobra.Command, file string) ([]byte, error) {
	in := cmd.InOrStdin()
	switch file {
	case "":
		return nil, errors.New("which request? give its JSON body with --body FILE, or --body - for standard input")
	case "-":
	default:
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("open the request's body: %w", err)
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxExplainedBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the request's body: %w", err)
	case len(raw) > maxExplainedBody:
		return nil, errors.New("the request's body is over 4 MiB: gateways pass such bodies unread and route them by load alone")
	}
	return raw, nil
}

// explanation is what explain prints; ages are in seconds, -1 for never.
type explanation struct {
	Pool          string            `json:"pool"`
	Model         string            `json:"model"`
	Endpoint      string            `json:"endpoint"`
	Rule          string            `json:"rule"`
	StandIn       string            `json:"stand_in,omitempty"` // decides here for a rule that only the module has
	Group         string            `json:"group,omitempty"`    // control: of the pool's control group, whose rule it is
	Observe       bool              `json:"observe"`
	Fingerprints  string            `json:"fingerprints"` // exact, approximate, missing, inexact; none
	NoKey         string            `json:"no_key,omitempty"`
	PromptTokens  int               `json:"prompt_tokens"`
	At            time.Time         `json:"at"` // when it was so
	Table         explainedTable    `json:"table"`
	Checkpoints   []explainedPoint  `json:"checkpoints"`
	Workers       []explainedWorker `json:"workers"`
	Best          string            `json:"best"`
	Second        string            `json:"second"`
	MatchedTokens int               `json:"matched_tokens"`
	Why           string            `json:"why"`
	Draws         int               `json:"draws"`           // decisions that chosen_share counts
	Price         *explainedPrice   `json:"price,omitempty"` // rule cost: of a second of prefill

	ramp time.Duration // rule cost: how long a worker is young
}

type explainedTable struct {
	Epoch   uint64 `json:"epoch"`
	Version uint64 `json:"version"`
	Bits    uint8  `json:"bits"`
}

type explainedPoint struct {
	Tokens      uint64   `json:"tokens"`
	Fingerprint string   `json:"fingerprint"`
	TurnEnd     bool     `json:"turn_end"`
	Found       bool     `json:"found"`
	Universal   bool     `json:"universal,omitempty"`
	Holders     []string `json:"holders"`
}

type explainedWorker struct {
	Address        string          `json:"address"`
	State          string          `json:"state"`
	LeftOut        string          `json:"left_out,omitempty"`
	Drawn          *bool           `json:"drawn,omitempty"` // by this decision; a cost is that of any that draws it
	ChosenShare    float64         `json:"chosen_share"`    // of as many decisions as draws says
	MatchedTokens  int             `json:"matched_tokens"`
	CreditedTokens int             `json:"credited_tokens"`
	Trust          float64         `json:"trust"`
	Load           float64         `json:"load"`
	ReportedLoad   float64         `json:"reported_load"`
	Watermark      float64         `json:"watermark"`
	InFlight       int             `json:"in_flight"`
	UncachedTokens int             `json:"uncached_tokens"`
	PrefillRate    float64         `json:"prefill_tokens_per_second"`
	DecodeSeconds  float64         `json:"decode_seconds_per_token"`
	FreeTokens     int             `json:"free_tokens"`
	TailSeconds    float64         `json:"tail_age_seconds"`
	RecentTokens   float64         `json:"recent_tokens"`
	CacheSeconds   float64         `json:"cache_age_seconds"`          // since its cache was empty; 0 not known
	Home           bool            `json:"home"`                       // of the prompt's hot prefix
	SentSeconds    float64         `json:"sent_age_seconds,omitempty"` // since this gateway itself sent the prompt there, see --sent
	AgeSeconds     float64         `json:"report_age_seconds"`
	Cost           *explainedCost  `json:"cost_seconds,omitempty"`
	Score          *explainedScore `json:"score,omitempty"`
}

type explainedCost struct {
	PrefillSeconds float64 `json:"prefill_seconds"`  // of what the cache doesn't save there
	PrefillPrice   float64 `json:"prefill_price"`    // of each of them
	HeldUp         float64 `json:"held_up_requests"` // by one of them

	Wait   float64 `json:"wait"`
	Miss   float64 `json:"miss"` // prefill_seconds x prefill_price, and the four next
	Decode float64 `json:"decode"`
	Evict  float64 `json:"evict"`
	Spread float64 `json:"spread"`
	Sum    float64 `json:"sum"`

	MissHome    float64         `json:"miss_home,omitempty"`    // for the copy that a home is to get
	MissSibling float64         `json:"miss_sibling,omitempty"` // for what another worker is just computing
	MissYoung   float64         `json:"miss_young,omitempty"`   // for a cache that was empty just now
	MissGone    float64         `json:"miss_gone,omitempty"`    // for a cache that is about to be
	Young       *explainedYoung `json:"young,omitempty"`        // what miss_young is made of
}

type explainedYoung struct {
	Youth          float64 `json:"youth"`           // 1 just now, 0 once ramp_ms are over
	LaterSeconds   float64 `json:"later_seconds"`   // of the first token than elsewhere
	AllowedSeconds float64 `json:"allowed_seconds"` // of these
	DetourSeconds  float64 `json:"detour_seconds"`  // charged where another young worker is the prefix's own
}

// explainedPrice is what a second of prefill costs: base, and each for every request that it holds up.
type explainedPrice struct {
	Base      float64 `json:"base"`
	Each      float64 `json:"each"`
	Memory    float64 `json:"kv_mean"`   // share of KV blocks that requests hold, on average
	Tightness float64 `json:"tightness"` // how far that raises each from half of decode_weight to 1
}

type explainedScore struct {
	CachedShare float64 `json:"cached_share"`
	Queue       float64 `json:"queue"`
	Utilization float64 `json:"utilization"`
	Sum         float64 `json:"sum"`
}

// draws is how many decisions tell what chance does.
const draws = 200

// explain decides as a gateway would that has just fetched all it knows.
func explain(cmd *cobra.Command, raw []byte, o *explainOptions) (*explanation, error) {
	host := abi.NewFake()
	defer abi.UseFake(host)()
	if o.snapshot != "" {
		saved, err := openSnapshot(o.snapshot)
		if err != nil {
			return nil, err
		}
		return explainOnce(cmd, host, raw, o, &saved.source, saved.taken)
	}
	for attempt := 1; ; attempt++ {
		from := &source{name: o.control.url, get: o.control.get}
		taken := time.Now()
		var kept *snapshotWriter
		if o.save != "" {
			kept = newSnapshotWriter(taken, o.control.url)
			from.get = kept.keep(from.get)
		}
		e, err := explainOnce(cmd, host, raw, o, from, taken)
		if errors.Is(err, errMoved) && attempt < 3 {
			continue
		}
		if err == nil && kept != nil {
			err = kept.write(o.save)
		}
		return e, err
	}
}

func explainOnce(cmd *cobra.Command, host *abi.Fake, raw []byte, o *explainOptions, from *source, taken time.Time) (*explanation, error) {
	now := taken.UnixNano()
	host.Clock = now
	snapshot, err := from.fetch(cmd.Context(), host, now)
	if err != nil {
		return nil, err
	}
	in := plugin.NewInspector(snapshotDeployment, o.seed)
	f := in.Fleet
	f.Refresh(now)
	if err := from.fetchVocabularies(cmd.Context(), host, f.PolicyVocabularies()); err != nil {
		return nil, err
	}
	if !in.LoadVocabularies(now) {
		return nil, errors.New("a vocabulary that the policy names can't be read by this build; is it as new as the control service?")
	}
	r := in.Read(raw, o.endpoint, o.pool, o.session, now)
	if r.Pool == nil {
		return nil, noPool(f, o, &r)
	}
	if err := snapshot.fetchPages(cmd.Context(), host, r.Checkpoints); err != nil {
		return nil, err
	}
	if o.sent != "" {
		address, text, _ := strings.Cut(o.sent, "=")
		ago, err := time.ParseDuration(text)
		if err != nil || ago < 0 || !in.Sent(&r, in.Fleet.RefOf(address), ago, now) {
			return nil, fmt.Errorf("--sent %q: give the address of a worker of the pool and how long ago, such as 10.0.0.5:8000=40ms", o.sent)
		}
	}
	if o.save != "" {
		if err := snapshot.fetchAllPages(cmd.Context(), host); err != nil {
			return nil, err
		}
	}
	view, _, d := in.Decide(&r, now)
	p := r.Pool.View.Pool
	rule, group, ramp := p.Policy.Name, "", p.Policy.Ramp
	if d.Control {
		rule, group, ramp = p.Control.Policy.Name, "control", p.Control.Policy.Ramp
	}
	e := &explanation{
		Pool: p.Name, Model: r.Model, Endpoint: o.endpoint.String(), Rule: rule.String(), Group: group,
		Observe: f.Off() || p.Mode == policy.Observe, Fingerprints: r.Mode, PromptTokens: r.Tokens,
		At: taken.Round(0), ramp: ramp, Table: explainedTable{snapshot.meta.Epoch, snapshot.meta.Version, snapshot.meta.Bits},
		Best: f.AddressOf(d.Best), Second: f.AddressOf(d.Second), MatchedTokens: d.MatchedTokens, Why: d.Why.String(),
		Checkpoints: []explainedPoint{}, Workers: []explainedWorker{},
	}
	if p := d.Price; p != (route.Price{}) {
		e.Price = &explainedPrice{p.Base, p.Each, p.Memory, p.Tight}
	}
	if rule == policy.Custom {
		e.StandIn = policy.Threshold.String()
	}
	if r.Reason != body.OK {
		e.Fingerprints, e.NoKey = "none", r.Reason.String()
	}
	for _, c := range r.Checkpoints {
		e.Checkpoints = append(e.Checkpoints, explainPoint(f, c))
	}
	for i := range d.Candidates {
		e.Workers = append(e.Workers, explainWorker(rule, &view.Workers[i], &d.Candidates[i]))
	}
	e.draw(in, &r, rule, now)
	return e, nil
}

// draw decides again and again, as chance has a part in it: how often each worker is chosen, and
// what those would cost that this decision didn't look at.
func (e *explanation) draw(in *plugin.Inspector, r *plugin.Reading, rule policy.Name, now int64) {
	if e.Best == "" {
		return
	}
	e.Draws = draws
	chosen := map[string]int{e.Best: 1}
	for range draws - 1 {
		view, _, d := in.Decide(r, now)
		chosen[in.Fleet.AddressOf(d.Best)]++
		for i := range d.Candidates {
			if w := &e.Workers[i]; w.Cost == nil && rule == policy.Cost {
				w.Cost = explainWorker(rule, &view.Workers[i], &d.Candidates[i]).Cost
			}
		}
	}
	for i := range e.Workers {
		e.Workers[i].ChosenShare = float64(chosen[e.Workers[i].Address]) / draws
	}
}

func noPool(f *fleet.Fleet, o *explainOptions, r *plugin.Reading) error {
	var names []string
	for _, p := range f.Pools() {
		names = append(names, p.View.Pool.Name)
	}
	known := "the policy has " + strings.Join(names, ", ")
	switch {
	case len(names) == 0:
		return errors.New("the policy has no pool: gateways let the proxy's own balancer place everything")
	case o.pool != "":
		return fmt.Errorf("no pool is named %q: %s", o.pool, known)
	case r.Reason != body.OK:
		return fmt.Errorf("the body has no model that could be read (%s), and %s; name one with --pool", r.Reason, known)
	}
	return fmt.Errorf("no pool serves model %q: gateways let the proxy's own balancer place it; %s (--pool routes in one of them all the same)", r.Model, known)
}

func explainPoint(f *fleet.Fleet, c fingerprint.Checkpoint) explainedPoint {
	refs, universal, found := f.Holders(c)
	p := explainedPoint{
		Tokens: uint64(c.End) * fingerprint.UnitTokens, Fingerprint: fmt.Sprintf("%016x", c.Fingerprint),
		TurnEnd: c.TurnEnd, Found: found, Universal: universal, Holders: []string{},
	}
	for _, ref := range refs {
		if address := f.AddressOf(ref); address != "" {
			p.Holders = append(p.Holders, address)
		}
	}
	return p
}

func explainWorker(rule policy.Name, w *route.Worker, c *route.Candidate) explainedWorker {
	e := explainedWorker{
		Address: w.Address, State: w.State.String(), LeftOut: c.Left.String(),
		MatchedTokens: c.MatchedTokens, CreditedTokens: c.CreditedTokens, Trust: w.Trust,
		Load: c.Load, ReportedLoad: c.ReportedLoad, Watermark: c.Watermark,
		InFlight: c.InFlight, UncachedTokens: c.UncachedTokens,
		PrefillRate: w.PrefillRate, DecodeSeconds: w.DecodeSeconds,
		FreeTokens: w.FreeTokens, TailSeconds: w.TailAge.Seconds(), RecentTokens: w.RecentTokens, AgeSeconds: -1,
		CacheSeconds: w.CacheAge.Seconds(), Home: c.Home, SentSeconds: c.SentAgo.Seconds(),
	}
	if c.Age >= 0 {
		e.AgeSeconds = c.Age.Seconds()
	}
	t := &c.Terms
	switch rule {
	case policy.Cost:
		drawn := t.Seen // the decision is valid until the next one
		e.Drawn = &drawn
		if t.Seen {
			e.Cost = explainCost(t)
		}
	case policy.Weighted:
		if t.Seen {
			e.Score = &explainedScore{t.CachedShare, t.Queue, t.Utilization, t.Sum}
		}
	}
	return e
}

func explainCost(t *route.Terms) *explainedCost {
	c := &explainedCost{
		PrefillSeconds: t.Own, PrefillPrice: t.Prefill, HeldUp: t.HeldUp,
		Wait: t.Wait, Miss: t.Miss, Decode: t.Decode, Evict: t.Evict, Spread: t.Spread, Sum: t.Cost,
		MissHome: t.Home, MissSibling: t.Sibling, MissYoung: t.Young, MissGone: t.Gone,
	}
	if t.Youth > 0 {
		c.Young = &explainedYoung{t.Youth, t.Later, t.Allowed, t.Detour}
	}
	return c
}

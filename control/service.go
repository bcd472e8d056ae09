package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/warmpath/warmpath/control/admission"
	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/cluster"
	"github.com/warmpath/warmpath/control/discovery"
	"github.com/warmpath/warmpath/control/discovery/adapters"
	"github.com/warmpath/warmpath/control/eviction"
	"github.com/warmpath/warmpath/control/heartbeat"
	"github.com/warmpath/warmpath/control/index"
	"github.com/warmpath/warmpath/control/ingest"
	"github.com/warmpath/warmpath/control/publish"
	"github.com/warmpath/warmpath/control/share"
	"github.com/warmpath/warmpath/control/tiers"
	"github.com/warmpath/warmpath/control/vocabulary"
	"github.com/warmpath/warmpath/docs"
	"github.com/warmpath/warmpath/shared/policy"
)

// Service is the control service.
type Service struct {
	cfg     Config
	log     *slog.Logger
	started time.Time
	ln      net.Listener
	handler http.Handler
	metrics *metrics

	listMu       sync.Mutex // of tell: one joined list after the other
	lists        *discovery.Lists
	fleet        *discovery.Fleet
	monitor      *discovery.Monitor
	index        *index.Index
	evictions    map[uint16]*eviction.Detector // by ref; of the publish loop
	gateways     *ingest.Gateways
	ingest       *ingest.Ingest
	table        *publish.Table
	vocabularies vocabulary.Store

	cluster    *cluster.Cluster // nil: alone
	agreed     atomic.Bool      // the documents were read
	plans      planBook
	ledger     ledgerBook
	members    memberBook
	workers    workersBook
	agreements agreedBook // under policyMu

	policyMu  sync.Mutex // serialises edits
	policy    atomic.Pointer[document]
	exact     map[string]*exactPool // by pool. Under policyMu
	wasExact  []exactMark           // before a restart. Under policyMu
	badFiles  map[string]string     // of files, by path; replaced, never changed. Under policyMu
	adapters  *adapters.Book
	adapted   map[string]adapters.Served // by pool. Under policyMu
	inForce   *policy.Set                // the policy with them. Under policyMu
	tiers     *tiers.Book
	tiered    map[string]bool // pools with prefixes in slower memory. Under policyMu
	parity    parityBook
	quota     quotaBook
	admission *admission.Admission
	feeds     feeds
	saved     saveBook
	unlock    func()       // the state file
	share     *share.Share // nil: there are no other replicas
	hot       *hotBook
	young     *youngBook
	beats     beats
	offHeld   bool // by SetOff: another policy doesn't lift it. Under policyMu

	learning   atomic.Bool
	learnUntil time.Time

	listsFile []byte // contents New read, for the watchers
	policyDoc []byte

	dirty    chan struct{} // entries changed
	loaded   chan struct{} // loads may have changed
	batched  chan struct{} // both, as one
	urgent   chan struct{} // roster, a state or a mark changed
	saveSoon chan struct{} // a switch was thrown
	serving  chan struct{}
	ready    chan struct{}
	stopping chan struct{}
	ran      atomic.Bool
	healed   bool   // of the publish loop
	unnamed  uint64 // retirements whose refs the table doesn't name any more; likewise
	resting  atomic.Int64
}

// New checks cfg, reads its files, locks the state file and binds the address.
// Nothing runs before Run. Close releases both of a service that is never run.
func New(cfg Config) (_ *Service, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	unlock, err := lockState(cfg.StateFile, cfg.Logger)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	now := time.Now()
	cfg.Index.Replica = uint16(rand.Uint32())
	s := &Service{
		cfg: cfg, log: cfg.Logger, started: now, unlock: unlock,
		index: index.New(cfg.Index), gateways: ingest.NewGateways(), exact: map[string]*exactPool{}, feeds: feeds{byRef: map[uint16]*feed{}, sized: make(chan struct{}, 1)}, beats: beats{caches: map[uint16]*beatCache{}}, evictions: map[uint16]*eviction.Detector{},
		plans: newPlanBook(), ledger: newLedgerBook(), members: newMemberBook(), workers: newWorkersBook(),
		dirty: make(chan struct{}, 1), loaded: make(chan struct{}, 1), batched: make(chan struct{}, 1), urgent: make(chan struct{}, 1), saveSoon: make(chan struct{}, 1),
		serving: make(chan struct{}), ready: make(chan struct{}), stopping: make(chan struct{}),
		hot: newHotBook(now), young: newYoungBook(), tiers: tiers.New(), tiered: map[string]bool{},
	}
	s.lists = newLists(&s.cfg)
	if !s.alone() {
		s.cfg.Fleet.Agreed, s.cfg.Fleet.Wanted = true, func() { kick(s.members.wanted) }
		s.cfg.Fleet.Quarantine = cmp.Or(s.cfg.Fleet.Quarantine, agreedQuarantine)
	}
	cfg.Publish.Value = s.index.Value
	s.table = publish.New(cfg.Publish, now)
	s.fleet = discovery.NewFleet(s.cfg.Fleet, discovery.Hooks{
		Added:   s.workerAdded,
		Updated: func(w discovery.Worker) { s.index.AddWorker(workerSpec(w)); kick(s.dirty) },
		Retired: func(ref uint16) { s.index.RemoveWorker(ref); s.young.retired(ref); kick(s.dirty) },
		Changed: func(urgent bool) {
			if urgent {
				kick(s.urgent)
			} else {
				kick(s.loaded)
			}
		},
	})
	s.monitor = discovery.NewMonitor(s.fleet, cfg.Health, cfg.Transport, s.log)
	s.ingest = &ingest.Ingest{
		Index: s.index, Fleet: s.fleet, Gateways: s.gateways, Log: s.log, Nudge: s.monitor.Nudge,
		Observing:  func(pool uint8) bool { return s.policy.Load().observing(pool) },
		Dispatched: s.hot.dispatched, Copied: s.hot.copied,
	}
	if !s.restore() && cfg.Learn > 0 {
		s.learnUntil = now.Add(cfg.Learn)
		s.learning.Store(true)
		s.table.KeepUntil(s.learnUntil)
	}
	s.adapters = adapters.NewBook(cfg.Discovery.AdaptersInterval, s.adapted)
	s.startAdmission(now)
	if err := s.firstLists(); err != nil {
		return nil, err
	}
	if s.ln, err = cfg.listen(); err != nil {
		return nil, err
	}
	if err := s.openCluster(); err != nil {
		_ = s.ln.Close()
		return nil, err
	}
	s.metrics = newMetrics(s)
	s.handler = s.metrics.instrument(api.New(s, api.Config{
		Token: cfg.Token, HeartbeatToken: cfg.HeartbeatToken, OpenAPI: docs.OpenAPI, Metrics: s.metrics.handler(), Log: s.log,
		MaxBatchBytes: ingest.MaxBatchBytes, MaxDocumentBytes: discovery.MaxListBytes, MaxHeartbeatBytes: heartbeat.MaxBytes,
	}))
	return s, nil
}

// firstLists takes policy and workers in, from the config or its files.
func (s *Service) firstLists() error {
	var specs []discovery.Spec
	var err error
	switch {
	case s.cfg.WorkersFile != "":
		if s.listsFile, err = discovery.ReadBounded(s.cfg.WorkersFile); err == nil {
			specs, err = discovery.Parse(s.cfg.WorkersFile, s.listsFile)
		}
	default:
		specs, err = discovery.Check(s.cfg.Workers)
	}
	if err != nil {
		return fmt.Errorf("read worker list: %w", err)
	}
	s.policyDoc = s.cfg.Policy
	source := "policy"
	if s.cfg.PolicyFile != "" {
		source = s.cfg.PolicyFile
		if s.policyDoc, err = discovery.ReadBounded(source); err != nil {
			return fmt.Errorf("read policy: %w", err)
		}
	}
	var d *document
	if s.policyDoc != nil {
		d, err = parsePolicy(source, s.policyDir(), s.policyDoc, &s.vocabularies)
	} else {
		d, err = derivePolicy(poolsOf(specs))
	}
	if err != nil {
		return err
	}
	if err := s.setLocal(d, s.policyDoc); err != nil {
		return err
	}
	return s.SetWorkers(specs)
}

// Close releases the address and the state file of a service that was not run.
func (s *Service) Close() error {
	defer s.unlock()
	defer s.closeCluster()
	return s.ln.Close()
}

// Addr is the bound address.
func (s *Service) Addr() string { return s.ln.Addr().String() }

// URL is http:// and Addr.
func (s *Service) URL() string { return "http://" + s.Addr() }

// Handler is the HTTP API.
func (s *Service) Handler() http.Handler { return s.handler }

// Ready is closed when the service listens and every worker was probed once.
func (s *Service) Ready() <-chan struct{} { return s.ready }

// Serving is closed once the table may be handed out.
func (s *Service) Serving() <-chan struct{} { return s.serving }

// Stopping is closed when the service begins to end.
func (s *Service) Stopping() <-chan struct{} { return s.stopping }

// Table is the published table.
func (s *Service) Table() *publish.Table { return s.table }

// Run serves until ctx ends, then drains: long-polls return at once, requests
// under way finish, the state file is written. It returns nil after a clean
// end, and may be called once.
func (s *Service) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return errors.New("control: Run was called before")
	}
	defer s.unlock()
	defer s.closeCluster()
	var reserve silent
	server := &http.Server{
		ConnState:         reserve.track,
		Handler:           s.handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       api.MaxWait + 30*time.Second,
		WriteTimeout:      api.MaxWait + 30*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		err := server.Serve(s.ln)
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return fmt.Errorf("serve %s: %w", s.Addr(), err)
	})
	group.Go(func() error { return s.monitor.Run(ctx) })
	group.Go(func() error { s.publishLoop(ctx); return nil })
	group.Go(func() error { s.saveLoop(ctx); return nil })
	group.Go(func() error { s.parityLoop(ctx); return nil })
	group.Go(func() error { s.admissionLoop(ctx); return nil })
	group.Go(func() error { s.eventsLoop(ctx); return nil })
	group.Go(func() error { s.adaptersLoop(ctx); return nil })
	group.Go(func() error { return s.shareLoop(ctx) })
	if !s.alone() {
		s.runCluster(ctx, group)
	}
	for _, source := range s.cfg.Sources {
		group.Go(func() error { return s.follow(ctx, source) })
	}
	if s.cfg.WorkersFile != "" {
		group.Go(func() error {
			return discovery.Watch(ctx, s.cfg.WorkersFile, s.listsFile, s.cfg.ReadInterval, s.log, s.workersFile)
		})
	}
	if s.cfg.PolicyFile != "" {
		group.Go(func() error {
			return discovery.Watch(ctx, s.cfg.PolicyFile, s.policyDoc, s.cfg.ReadInterval, s.log, s.SetPolicy)
		})
	}
	s.log.Info("control service listens", "address", s.Addr(), "token", s.cfg.Token != "")
	group.Go(func() error {
		<-ctx.Done()
		close(s.stopping)
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ShutdownTimeout)
		defer cancel()
		reserve.close()
		err := server.Shutdown(drain)
		if err != nil {
			_ = server.Close()
			err = fmt.Errorf("drain: %w", err)
		}
		return err
	})
	err := group.Wait()
	if saveErr := s.save(time.Now()); saveErr != nil {
		s.log.Error("state not saved", "err", saveErr)
		err = errors.Join(err, saveErr)
	}
	if err != nil {
		s.log.Error("control service ended", "err", err)
		return err
	}
	s.log.Info("control service ended")
	return nil
}

// Batch applies a batch frame; see package ingest.
func (s *Service) Batch(frame []byte) ([]byte, error) {
	begin := time.Now()
	epoch, version, off := s.table.Position()
	ack, order, err := s.ingest.Batch(frame, epoch, version, off, begin, nil)
	if err == nil {
		s.metrics.batchSeconds.Observe(time.Since(begin).Seconds())
		s.tellBatch(frame, order)
		kick(s.batched)
	}
	return ack, err
}

// SetWorkers replaces the worker list, beside which sources may find more. The
// list is refused whole when anything in it is wrong.
func (s *Service) SetWorkers(specs []discovery.Spec) error {
	specs, err := discovery.Check(specs)
	if err == nil {
		err = s.tell(s.cfg.listName(), discovery.Finding{Workers: specs})
	}
	if err != nil {
		return badList(err)
	}
	return nil
}

// applyList puts the joined list of all sources in force.
func (s *Service) applyList(specs []discovery.Spec) error {
	if err := s.derive(specs); err != nil {
		return err
	}
	for _, name := range poolsOf(specs) {
		if _, ok := s.policy.Load().poolIndex(name); !ok {
			s.log.Warn("workers of a pool that the policy doesn't have get no requests", "pool", name)
		}
	}
	before := s.fleet.Drained()
	s.monitor.SetList(specs)
	after := s.fleet.Drained()
	s.drainsOver(slices.DeleteFunc(before, func(a string) bool { return slices.Contains(after, a) }))
	return nil
}

// derive makes a policy of the list's pools where nobody wrote one. Modes set at
// run time outlive a change of the list.
func (s *Service) derive(specs []discovery.Spec) error {
	s.policyMu.Lock()
	derived := s.agreements.local.derived
	s.policyMu.Unlock()
	if !derived {
		return nil
	}
	next, err := derivePolicy(poolsOf(specs))
	if err != nil {
		return err
	}
	if !s.alone() {
		return s.setLocal(next, nil)
	}
	s.policyMu.Lock()
	defer s.policyMu.Unlock()
	d := s.policy.Load()
	if !d.derived {
		return nil // one was put meanwhile
	}
	next, err = next.edit(func(c *document) error {
		c.off, c.admission, c.settings = d.off, d.admission, d.settings
		for _, p := range c.pools {
			for _, old := range d.pools {
				if old["name"] == p["name"] {
					p["mode"], p["ring_units"] = old["mode"], old["ring_units"]
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.setDocument(next)
}

func (s *Service) workersFile(data []byte) error {
	specs, err := discovery.Parse(s.cfg.WorkersFile, data)
	if err != nil {
		// For the status: the last good list holds.
		return errors.Join(err, s.tell(s.cfg.listName(), discovery.Finding{Err: err}))
	}
	return s.SetWorkers(specs)
}

// PutWorkers is SetWorkers on a YAML or JSON body.
func (s *Service) PutWorkers(body []byte) error {
	if s.cfg.WorkersFile != "" {
		return &api.Failure{Status: http.StatusConflict, Code: "list_from_file", Message: "the worker list comes from " + s.cfg.WorkersFile, Remedy: "edit the file: it is watched"}
	}
	specs, err := discovery.Parse("body", body)
	if err != nil {
		return badList(err)
	}
	if !s.alone() {
		return s.agreeList(body)
	}
	return s.SetWorkers(specs)
}

// Drain sets or lifts the drain of a worker until it leaves the list.
func (s *Service) Drain(address string, on bool) error {
	if !s.alone() {
		canonical, err := s.fleet.Listed(address)
		if err != nil {
			return badList(err)
		}
		return s.agreeDrain(canonical, on)
	}
	if err := s.fleet.Drain(address, on, time.Now()); err != nil {
		return badList(err)
	}
	kick(s.saveSoon)
	return nil
}

func badList(err error) error {
	var p discovery.Problem
	if !errors.As(err, &p) {
		return err
	}
	return &api.Failure{Status: http.StatusBadRequest, Code: "bad_workers", Message: err.Error(), Remedy: p.Remedy}
}

// SetPolicy swaps the policy; a bad one is refused whole.
func (s *Service) SetPolicy(doc []byte) error {
	d, err := parsePolicy("policy", s.policyDir(), doc, &s.vocabularies)
	if err != nil {
		return err
	}
	return s.setLocal(d, doc)
}

// policyDir is where relative paths of the policy begin.
func (s *Service) policyDir() string {
	if s.cfg.PolicyFile == "" {
		return "."
	}
	return filepath.Dir(s.cfg.PolicyFile)
}

// takeDocument puts a policy from outside in force. Requires policyMu.
func (s *Service) takeDocument(d *document) error {
	if s.offHeld && !d.off {
		var err error
		if d, err = d.withOff(true); err != nil {
			return err
		}
	}
	return s.setDocument(d)
}

// PutPolicy is SetPolicy for the API.
func (s *Service) PutPolicy(body []byte) error {
	if s.cfg.PolicyFile != "" {
		return &api.Failure{Status: http.StatusConflict, Code: "policy_from_file", Message: "the policy comes from " + s.cfg.PolicyFile, Remedy: "edit the file: it is watched"}
	}
	if s.alone() {
		return s.SetPolicy(body)
	}
	if _, err := parsePolicy("policy", s.policyDir(), body, &s.vocabularies); err != nil {
		return err
	}
	return s.agree(func(a *agreement) { a.put(body) })
}

// Policy is the policy in force, as it may be written back.
func (s *Service) Policy() []byte { return slices.Clone(s.policy.Load().shown) }

// Vocabulary is piece n of a vocabulary that the policy names, nil for none.
func (s *Service) Vocabulary(hash policy.Hash, n int) []byte { return s.vocabularies.Shard(hash, n) }

// SetOff makes every pool observe, or lifts that. It holds until it is lifted:
// a change of the policy file doesn't, nor a restart with a state file.
func (s *Service) SetOff(off bool) error {
	defer kick(s.saveSoon)
	if !s.alone() {
		return s.agreeOff(off)
	}
	return s.editPolicy(func(d *document) (*document, error) {
		s.offHeld = off
		return d.withOff(off)
	})
}

// SetMode sets one pool's mode: "observe", "route" or "enforce".
func (s *Service) SetMode(pool, mode string) error {
	if !s.alone() {
		return s.agreeMode(pool, mode)
	}
	return s.editPolicy(func(d *document) (*document, error) { return d.withMode(pool, mode) })
}

func (s *Service) editPolicy(f func(*document) (*document, error)) error {
	s.policyMu.Lock()
	defer s.policyMu.Unlock()
	d, err := f(s.policy.Load())
	if err != nil || d == nil {
		return err
	}
	return s.setDocument(d)
}

// setDocument publishes at once: a switch to observe has to arrive within a
// second.
func (s *Service) setDocument(d *document) error {
	now := time.Now()
	if err := s.publishAdmission(d, now); err != nil {
		return err
	}
	s.adoptTokenizers(d, now)
	s.stepExact(d, now)
	s.policy.Store(d)
	s.table.SetPolicy(s.policyText(d), s.exactSection(d), d.off)
	kick(s.urgent) // pool numbers in the roster may differ
	return nil
}

// ResetIndex forgets every entry; gateways compare digests with an empty table.
func (s *Service) ResetIndex() {
	s.index.Clear()
	s.restartFeeds()
	s.index.Drain(func(index.Change) {})
	s.tiers.Drain(func(uint64, []uint16) {})
	s.learning.Store(false)
	s.table.KeepUntil(time.Time{})
	s.table.Clear(time.Now())
}

// workerSpec is what the index needs to know of a worker. An engine that keeps no
// prefixes has a cache of no size, however large its memory is.
func workerSpec(w discovery.Worker) index.WorkerSpec {
	spec := index.WorkerSpec{Ref: w.Ref, Pool: w.Pool, CapacityTokens: w.CapacityTokens, CapacityAssumed: w.CapacityAssumed, BlockTokens: w.BlockTokens, PrefillRate: w.PrefillTokensPerSecond}
	if w.CachingOff {
		spec.CapacityTokens, spec.CapacityAssumed = 0, false
	}
	return spec
}

func poolsOf(specs []discovery.Spec) []string {
	var out []string
	for _, s := range specs {
		if !slices.Contains(out, s.Pool) {
			out = append(out, s.Pool)
		}
	}
	return out
}

// kick signals without waiting; a signal that is already there is enough.
func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

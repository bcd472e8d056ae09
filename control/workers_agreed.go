package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/cluster"
	"github.com/warmpath/warmpath/control/discovery"
)

// The worker list that was put at one replica is every replica's, and so are
// drains: the document "workers". A list that was put counts as long as the list
// in the configuration that it was put over is the same; a replica whose list
// comes from a file keeps to that. A drain lasts until it is lifted or its worker
// leaves the list, wherever that is seen first.
const (
	workersKey     = "workers"
	workersVersion = 1
	// maxAgreedList bounds what fits into a document.
	maxAgreedList = 900 << 10
	// pruneEvery is how often replicas tell which drained workers they list, and the
	// leader looks for drains of workers that nobody does; pruneAfter is how long it
	// has to see and hear of none.
	pruneEvery = 10 * time.Second
	pruneAfter = time.Minute
	// listedSubject is where they tell it: lists differ while configurations are
	// rolled out, or where a source finds workers later.
	listedSubject = "workers.listed"
	listedVersion = 1
)

// workersListed is what a replica tells the others every pruneEvery, where it isn't
// empty.
type workersListed struct {
	Version int `json:"version"`
	// Drained are addresses that drain and that its list has.
	Drained []string `json:"drained"`
}

// workersDocument is the document.
type workersDocument struct {
	Version int `json:"version"`
	// Over identifies the configured list that List was put over.
	Over string `json:"over"`
	// List is the body that was put; absent: the configured list counts.
	List string `json:"list,omitempty"`
	// Drained are addresses, in order.
	Drained []string `json:"drained,omitempty"`
}

// workersBook is what a replica keeps of the document.
type workersBook struct {
	left chan []string // drained addresses that left the list

	mu       sync.Mutex // one document is taken over at a time
	revision uint64
	list     string // that was put and is in force here; empty: the configured one is

	problemMu sync.Mutex
	problem   error // why what another replica was told isn't in force here
}

func newWorkersBook() workersBook { return workersBook{left: make(chan []string, 1)} }

// overWorkers identifies the configured list; empty without one.
func (s *Service) overWorkers() string {
	if len(s.cfg.Workers) == 0 {
		return ""
	}
	text, err := json.Marshal(s.cfg.Workers)
	if err != nil {
		panic(fmt.Sprintf("control: workers can't be written: %v", err)) // strings and numbers
	}
	return overOf(text)
}

func (s *Service) readWorkers(ctx context.Context) (*workersDocument, uint64, error) {
	e, err := s.cluster.Get(ctx, workersKey)
	if errors.Is(err, cluster.ErrNoKey) {
		// What was drained at a service that was alone stays so.
		return &workersDocument{Version: workersVersion, Over: s.overWorkers(), Drained: s.fleet.Drained()}, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	d, err := decodeWorkers(e.Value)
	return d, e.Revision, err
}

func decodeWorkers(text []byte) (*workersDocument, error) {
	var d workersDocument
	if err := decodeDocument(text, &d, &d.Version, workersVersion); err != nil {
		return nil, fmt.Errorf("read the workers' document: %w", err)
	}
	return &d, nil
}

// agreeWorkers changes the document, and puts it in force here.
func (s *Service) agreeWorkers(edit func(*workersDocument)) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*documentTime)
	defer cancel()
	for {
		d, revision, err := s.readWorkers(ctx)
		if err != nil {
			return notAgreed(err)
		}
		edit(d)
		slices.Sort(d.Drained)
		d.Drained = slices.Compact(d.Drained)
		text, err := json.Marshal(d)
		if err != nil {
			return fmt.Errorf("write the workers' document: %w", err)
		}
		revision, err = s.cluster.Put(ctx, workersKey, text, revision)
		switch {
		case err == nil:
			return s.applyWorkers(d, revision)
		case !errors.Is(err, cluster.ErrConflict) || ctx.Err() != nil:
			return notAgreed(err)
		}
	}
}

// applyWorkers puts a document in force, unless a newer one is.
func (s *Service) applyWorkers(d *workersDocument, revision uint64) error {
	b := &s.workers
	b.mu.Lock()
	defer b.mu.Unlock()
	if revision < b.revision {
		return nil
	}
	var err error
	list := d.List
	if d.Over != s.overWorkers() {
		list = ""
	}
	if s.cfg.WorkersFile == "" && list != b.list {
		specs := s.cfg.Workers
		if list != "" {
			specs, err = discovery.Parse("the list that was put", []byte(list))
		}
		if err == nil {
			err = s.SetWorkers(specs)
		}
		if err == nil {
			b.list = list
		}
	}
	s.fleet.SetDrained(d.Drained, time.Now())
	b.revision = revision
	kick(s.saveSoon)
	return err
}

// workersChanged hears of a change of the document.
func (s *Service) workersChanged(e cluster.Entry) {
	d, err := decodeWorkers(e.Value)
	if err == nil {
		err = s.applyWorkers(d, e.Revision)
	}
	if err != nil {
		s.log.Error("the workers that another replica was told aren't in force here", "err", err)
	}
	s.workers.problemMu.Lock()
	defer s.workers.problemMu.Unlock()
	s.workers.problem = err
}

// firstWorkers takes over what was agreed on before.
func (s *Service) firstWorkers(ctx context.Context) error {
	d, revision, err := s.readWorkers(ctx)
	switch {
	case err != nil:
		return err
	case revision == 0 && len(d.Drained) == 0:
		return nil // nobody was told anything yet
	case revision == 0 || s.cfg.WorkersFile == "" && d.Over != s.overWorkers():
		return s.agreeWorkers(func(d *workersDocument) {
			if s.cfg.WorkersFile == "" && d.Over != s.overWorkers() {
				// Whoever edited the configuration has the last word.
				d.Over, d.List = s.overWorkers(), ""
			}
		})
	}
	return s.applyWorkers(d, revision)
}

// agreeList is PUT /v1/workers.
func (s *Service) agreeList(body []byte) error {
	text, err := json.Marshal(string(body))
	if err != nil || len(text) > maxAgreedList {
		return &api.Failure{Status: http.StatusRequestEntityTooLarge, Code: "list_too_long", Message: fmt.Sprintf("%d bytes as JSON, replicas agree on %d at most", len(text), maxAgreedList), Remedy: "give every replica the list as a file (workers_file), or let a source find the workers"}
	}
	return s.agreeWorkers(func(d *workersDocument) { d.Over, d.List = s.overWorkers(), string(body) })
}

// agreeDrain sets or lifts the drain of a worker that this replica knows.
func (s *Service) agreeDrain(address string, on bool) error {
	return s.agreeWorkers(func(d *workersDocument) {
		d.Drained = slices.DeleteFunc(d.Drained, func(a string) bool { return a == address })
		if on {
			d.Drained = append(d.Drained, address)
		}
	})
}

// drainsOver hears that drained workers left the list. It doesn't wait.
func (s *Service) drainsOver(left []string) {
	if s.alone() || len(left) == 0 {
		return
	}
	select {
	case before := <-s.workers.left:
		left = append(left, before...)
	default:
	}
	s.workers.left <- left // there is room: lists are applied one after the other
}

// workersLoop takes drains out of the document whose workers are gone.
func (s *Service) workersLoop(ctx context.Context) {
	elsewhere := make(chan []string, 16)
	stop, err := s.cluster.Subscribe(listedSubject, func(data []byte) {
		var told workersListed
		if decodeDocument(data, &told, &told.Version, listedVersion) != nil {
			return
		}
		select {
		case elsewhere <- told.Drained:
		default: // it comes again
		}
	})
	if err != nil {
		s.log.Warn("which workers other replicas list isn't heard", "err", err)
	} else {
		defer stop()
	}
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	missing := map[string]time.Time{} // drained, and listed by nobody since
	heard := map[string]time.Time{}   // another replica lists it
	left := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case gone := <-s.workers.left:
			for _, a := range gone {
				left[a] = true
			}
		case listed := <-elsewhere:
			for _, a := range listed {
				heard[a] = time.Now()
			}
			continue
		case now := <-tick.C:
			maps.DeleteFunc(heard, func(_ string, at time.Time) bool { return now.Sub(at) >= pruneAfter })
			s.unlisted(missing, heard, now)
		}
		for a, since := range missing {
			if time.Since(since) >= pruneAfter {
				left[a] = true
			}
		}
		if len(left) == 0 || !s.agreed.Load() {
			continue
		}
		err := s.agreeWorkers(func(d *workersDocument) {
			d.Drained = slices.DeleteFunc(d.Drained, func(a string) bool { return left[a] })
		})
		if err != nil {
			s.log.Debug("drains of workers that are gone stay for now", "err", err)
			continue // with the next tick
		}
		maps.DeleteFunc(missing, func(a string, _ time.Time) bool { return left[a] })
		clear(left)
	}
}

// unlisted tells the others which drained workers are in the list here, and notes at
// the leader since when which are in none: heard are those of the others' lists.
func (s *Service) unlisted(missing, heard map[string]time.Time, now time.Time) {
	listed := map[string]bool{}
	for _, w := range s.fleet.Workers() {
		listed[w.Address] = true
	}
	told := workersListed{Version: listedVersion}
	nowhere := map[string]bool{}
	for _, a := range s.fleet.Drained() {
		if listed[a] {
			told.Drained = append(told.Drained, a)
		} else if heard[a].IsZero() {
			nowhere[a] = true
		}
	}
	if len(told.Drained) > 0 {
		text, err := json.Marshal(told)
		if err == nil {
			err = s.cluster.Publish(listedSubject, text)
		}
		if err != nil {
			s.log.Debug("drained workers not told", "err", err)
		}
	}
	if !s.cluster.Leads() || s.lists.Missing() != nil {
		clear(missing)
		return
	}
	for a := range nowhere {
		if missing[a].IsZero() {
			missing[a] = now
		}
	}
	maps.DeleteFunc(missing, func(a string, _ time.Time) bool { return !nowhere[a] })
}

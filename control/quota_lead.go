package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/warmpath/warmpath/control/admission"
	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/control/cluster"
)

// The ledger is at the leader. What the next leader must know is the document
// "ledger": which gateways may hold leases. A gateway gets its first lease after it
// has been written there, so a leader that takes over knows of everybody, gives
// nobody more than it shows to have before all have reported or the workers'
// counts bound the rest (docs/admission.md), and so grants nothing twice.
//
// The first thing that a leader does is to rewrite the document under its term. A
// write of the leader before it, however late, then meets another revision and is
// refused: whoever it was to be for gets no lease.

const (
	ledgerKey     = "ledger"
	ledgerVersion = 1
	// ledgerEvery is how often the document is looked at for what nobody waits for, and
	// ledgerFresh when it is written without news.
	ledgerEvery = 2 * time.Second
	ledgerFresh = 10 * time.Second
	// documentTime bounds one read or write of a document.
	documentTime = time.Second
	// documentAgain is when one that failed is tried again.
	documentAgain = 200 * time.Millisecond
	// pendingFor is how long the document names a gateway that asked for a lease and
	// didn't come back.
	pendingFor = time.Minute
)

// ledgerDocument is the document.
type ledgerDocument struct {
	Version int `json:"version"`
	// Term of the leader that wrote it.
	Term uint64 `json:"term,string"`
	// Unknown: the ledger may follow one of which it doesn't know all gateways.
	Unknown  bool                `json:"unknown,omitempty"`
	Gateways []admission.Process `json:"gateways"`
	// Open is how far the controllers of the pools let the classes below P0.
	Open map[string]float64 `json:"open,omitempty"`
}

// ledgerBook is what a replica keeps for the ledger's document.
type ledgerBook struct {
	change chan uint64   // terms of this replica, 0 when it doesn't lead any more; the last one counts
	write  chan struct{} // somebody waits for the document

	mu       sync.Mutex
	term     uint64 // of the ledger, 0 none
	revision uint64
	kept     map[admission.Process]bool // in the document
	unknown  bool                       // the ledger began without knowing of everybody
	current  []admission.Process        // whom the ledger knows
	// pending have asked for their first lease, then. They stay in the document until the
	// ledger knows them: their next report finds them there, whoever else came meanwhile.
	pending map[admission.Process]time.Time
	text    string // that was written last
	savedAt time.Time
	problem error
}

func newLedgerBook() ledgerBook {
	return ledgerBook{change: make(chan uint64, 1), write: make(chan struct{}, 1), kept: map[admission.Process]bool{}, pending: map[admission.Process]time.Time{}}
}

// status is nil without a ledger.
func (b *ledgerBook) status(now time.Time) *api.LedgerDocument {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.term == 0 {
		return nil
	}
	out := &api.LedgerDocument{Age: age(now, b.savedAt), Gateways: len(b.kept)}
	if b.problem != nil {
		out.Problem = b.problem.Error()
	}
	return out
}

// handlers of the leadership. They only say what is wanted: ledgerLoop does it.
func (s *Service) handlers() cluster.Handlers {
	tell := func(term uint64) {
		select {
		case <-s.ledger.change:
		default:
		}
		s.ledger.change <- term
	}
	return cluster.Handlers{
		Lead: tell,
		Follow: func() {
			// At once: what this ledger knows may be wrong from now on.
			s.admission.Follow()
			tell(0)
		},
	}
}

// ledgerLoop takes the ledger over when this replica leads, and keeps its document.
func (s *Service) ledgerLoop(ctx context.Context) {
	var term uint64 // wanted
	tick := time.NewTicker(ledgerEvery)
	defer tick.Stop()
	again := time.NewTimer(0)
	again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case term = <-s.ledger.change:
			s.ledger.forget()
		case <-again.C:
		case <-s.ledger.write:
		case <-tick.C:
		}
		err := s.takeLedger(ctx, term)
		if err == nil {
			err = s.writeLedger(ctx, term)
		}
		if errors.Is(err, errFenced) {
			// The lease says so as well, in a moment.
			s.admission.Follow()
			s.ledger.forget()
			term = 0
		}
		s.ledger.mu.Lock()
		s.ledger.problem = err
		s.ledger.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			s.log.Warn("the ledger's document", "err", err)
			again.Reset(documentAgain)
		}
	}
}

// errFenced: a leader with a later term has written the document.
var errFenced = errors.New("another replica leads")

// forget is for the time without a ledger.
func (b *ledgerBook) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.term, b.revision, b.current, b.unknown, b.text = 0, 0, nil, false, ""
	clear(b.kept)
	clear(b.pending)
}

// takeLedger starts the ledger of a term from the document, unless it runs or the
// replica doesn't lead.
func (s *Service) takeLedger(ctx context.Context, term uint64) error {
	s.ledger.mu.Lock()
	runs := s.ledger.term == term
	s.ledger.mu.Unlock()
	if term == 0 || runs || !s.cluster.Leads() {
		return nil
	}
	doc, revision, err := s.readLedger(ctx)
	switch {
	case err != nil:
		return err
	case doc.Term > term:
		return errFenced
	}
	doc.Term = term
	text, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("write the ledger's document: %w", err)
	}
	if revision, err = s.putLedger(ctx, text, revision); err != nil {
		return err
	}
	start := admission.Start{Term: term, Remembered: doc.Gateways, Open: doc.Open}
	if doc.Unknown {
		start.Remembered = nil
	}
	s.ledger.mu.Lock()
	s.ledger.term, s.ledger.revision, s.ledger.current, s.ledger.unknown = term, revision, doc.Gateways, doc.Unknown
	s.ledger.text, s.ledger.savedAt = string(text), time.Now()
	for _, p := range doc.Gateways {
		s.ledger.kept[p] = true
	}
	s.ledger.mu.Unlock()
	s.admission.Lead(start, time.Now())
	s.forgetMemory()
	s.log.Info("takes the ledger over", "term", term, "gateways", len(doc.Gateways), "unknown", doc.Unknown)
	return nil
}

// readLedger reads the document. Where there is none yet, the file of a service
// that was alone says what to go on from, or nothing is known.
func (s *Service) readLedger(ctx context.Context) (*ledgerDocument, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, documentTime)
	defer cancel()
	e, err := s.cluster.Get(ctx, ledgerKey)
	if errors.Is(err, cluster.ErrNoKey) {
		memory := s.recall()
		return &ledgerDocument{Version: ledgerVersion, Unknown: memory.Gateways == nil, Gateways: append([]admission.Process{}, memory.Gateways...)}, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	var doc ledgerDocument
	if err := decodeDocument(e.Value, &doc, &doc.Version, ledgerVersion); err != nil {
		// Better to learn anew than not to lead.
		s.log.Error("the ledger's document is ignored, it learns anew", "err", err)
		return &ledgerDocument{Version: ledgerVersion, Unknown: true}, e.Revision, nil
	}
	return &doc, e.Revision, nil
}

func (s *Service) putLedger(ctx context.Context, text []byte, revision uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, documentTime)
	defer cancel()
	return s.cluster.Put(ctx, ledgerKey, text, revision)
}

// writeLedger brings the document up to date.
func (s *Service) writeLedger(ctx context.Context, term uint64) error {
	learning, open := s.admission.Learning(), s.admission.Open()
	b := &s.ledger
	b.mu.Lock()
	if b.term == 0 || b.term != term {
		b.mu.Unlock()
		return nil
	}
	b.unknown = b.unknown && learning
	gateways := map[admission.Process]bool{}
	for p, asked := range b.pending {
		if time.Since(asked) > pendingFor {
			delete(b.pending, p)
			continue
		}
		gateways[p] = true
	}
	for _, p := range b.current {
		gateways[p] = true
	}
	doc := ledgerDocument{Version: ledgerVersion, Term: term, Unknown: b.unknown, Gateways: inOrder(gateways), Open: open}
	text, err := json.Marshal(&doc)
	before, revision, fresh := b.text, b.revision, time.Since(b.savedAt) < ledgerFresh
	b.mu.Unlock()
	if err != nil {
		return fmt.Errorf("write the ledger's document: %w", err)
	}
	if string(text) == before && fresh {
		return nil
	}
	next, err := s.putLedger(ctx, text, revision)
	if errors.Is(err, cluster.ErrConflict) {
		return s.conflict(ctx, term, revision)
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revision, b.text, b.savedAt, b.kept = next, string(text), time.Now(), gateways
	return nil
}

// conflict finds out who wrote the document: another leader, or this replica by a
// write whose answer was lost.
func (s *Service) conflict(ctx context.Context, term, revision uint64) error {
	doc, now, err := s.readLedger(ctx)
	switch {
	case err != nil:
		return err
	case doc.Term > term:
		return errFenced
	case now <= revision:
		return cluster.ErrConflict // read from a server that lags: try again
	}
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.revision, s.ledger.text = now, ""
	return cluster.ErrConflict
}

func inOrder(gateways map[admission.Process]bool) []admission.Process {
	out := slices.AppendSeq(make([]admission.Process, 0, len(gateways)), maps.Keys(gateways))
	slices.SortFunc(out, func(a, b admission.Process) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Nonce, b.Nonce))
	})
	return out
}

// keep is what the ledger calls to have gateways remembered.
func (s *Service) keep(gateways []admission.Process) error {
	b := &s.ledger
	b.mu.Lock()
	defer b.mu.Unlock()
	missing := false
	for _, p := range gateways {
		if !b.kept[p] {
			b.pending[p], missing = time.Now(), true
		}
	}
	if missing {
		kick(b.write)
		return admission.ErrNotYet
	}
	b.current = gateways
	for _, p := range gateways {
		delete(b.pending, p)
	}
	return nil
}

// forgetMemory removes the file of a ledger that was alone: the document has what it
// said, and grows old in it otherwise.
func (s *Service) forgetMemory() {
	if s.cfg.StateFile == "" {
		return
	}
	if err := os.Remove(s.cfg.StateFile + admissionFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("a file that isn't used any more stays", "file", s.cfg.StateFile+admissionFile, "err", err)
	}
}

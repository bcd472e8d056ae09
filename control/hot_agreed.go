package control

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/warmpath/warmpath/shared/homes"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// Every replica hears of all requests, but each at its own moment, so each would have other homes for
// a prefix, and give a copy to a gateway that another replica's table says nothing of. So the leader
// plans and tells the others, and they publish that plan. Without a leader, or with one of a version
// that doesn't tell, each plans for its own gateways, and copies are made by requests.

const (
	planSubject = "homes.planned"
	planVersion = 1
	// planCounts is for how long the leader's last word counts.
	planCounts = 4 * planEvery
)

// toldPlan is what the leader tells.
type toldPlan struct {
	Version  int          `json:"version"`
	From     uint64       `json:"from"` // the leader's nonce
	Prefixes []toldPrefix `json:"prefixes"`
}

type toldPrefix struct {
	Pool        uint8      `json:"pool"`
	Fingerprint uint64     `json:"fingerprint"`
	Units       uint32     `json:"units"`
	Share       float64    `json:"share"`
	Homes       []byte     `json:"homes"` // bitmap over refs, as the HOMES section has it
	Copies      []toldCopy `json:"copies,omitempty"`
}

type toldCopy struct {
	Ref   uint16 `json:"ref"`
	Maker uint64 `json:"maker"`
}

// planBook is what a replica has heard of the leader's plan.
type planBook struct {
	heard chan struct{} // kicked by every plan that came

	mu   sync.Mutex
	last toldPlan
	at   time.Time
}

func newPlanBook() planBook { return planBook{heard: make(chan struct{}, 1)} }

// plansForAll tells whether this service's plan is everybody's.
func (s *Service) plansForAll() bool { return s.alone() || s.cluster.Leads() }

// tellPlan tells the other replicas the plan, when it is theirs.
func (s *Service) tellPlan() {
	if s.alone() || !s.cluster.Leads() {
		return
	}
	text, err := json.Marshal(s.hot.told(s.cluster.Self().Nonce))
	if err == nil {
		err = s.cluster.Publish(planSubject, text)
	}
	if err != nil {
		s.log.Debug("the homes of hot prefixes are not told to the other replicas", "err", err)
	}
}

// told is the plan as it is told.
func (b *hotBook) told(from uint64) toldPlan {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := toldPlan{Version: planVersion, From: from, Prefixes: []toldPrefix{}}
	for _, pool := range slices.Sorted(maps.Keys(b.pools)) {
		for _, x := range b.pools[pool].Prefixes() {
			t := toldPrefix{Pool: pool, Fingerprint: x.Fingerprint, Units: x.Units, Share: x.Share, Homes: bitmapOf(x.Homes)}
			for _, c := range x.Copies {
				t.Copies = append(t.Copies, toldCopy(c))
			}
			out.Prefixes = append(out.Prefixes, t)
		}
	}
	return out
}

// plansLoop hears the leader's plans until ctx ends.
func (s *Service) plansLoop(ctx context.Context) error {
	stop, err := s.cluster.Subscribe(planSubject, func(data []byte) {
		var told toldPlan
		if decodeDocument(data, &told, &told.Version, planVersion) != nil {
			return
		}
		if leader, _, led := s.cluster.Leader(); !led || leader.Nonce != told.From || told.From == s.cluster.Self().Nonce {
			return
		}
		s.plans.mu.Lock()
		s.plans.last, s.plans.at = told, time.Now()
		s.plans.mu.Unlock()
		kick(s.plans.heard)
	})
	if err != nil {
		s.log.Warn("the homes that the leader plans aren't heard: this replica plans its own", "err", err)
		return nil
	}
	defer stop()
	<-ctx.Done()
	return nil
}

// takeLeadersPlan makes the leader's plan this one's, if there is another leader that has told one
// lately.
func (s *Service) takeLeadersPlan(now time.Time) bool {
	if s.plansForAll() {
		return false
	}
	s.plans.mu.Lock()
	defer s.plans.mu.Unlock()
	if s.plans.at.IsZero() || now.Sub(s.plans.at) > planCounts {
		return false
	}
	s.hot.adopt(s.plans.last.Prefixes)
	return true
}

// adopt replaces all plans.
func (b *hotBook) adopt(told []toldPrefix) {
	b.mu.Lock()
	defer b.mu.Unlock()
	byPool := map[uint8][]homes.Prefix{}
	for _, t := range told {
		if len(t.Homes) > table.MaxBitmapBytes {
			continue
		}
		b.planner(t.Pool)
		x := homes.Prefix{Fingerprint: t.Fingerprint, Units: t.Units, Share: t.Share}
		bitmap := wire.Home{Bitmap: t.Homes}
		bitmap.Refs(func(ref uint16) { x.Homes = append(x.Homes, ref) })
		for _, c := range t.Copies {
			x.Copies = append(x.Copies, homes.Copy(c))
		}
		byPool[t.Pool] = append(byPool[t.Pool], x)
	}
	for pool, p := range b.pools {
		p.Adopt(byPool[pool])
	}
}

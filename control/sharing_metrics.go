package control

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// shareCollector tells what replicas tell each other; nothing for a service that is
// alone.
type shareCollector struct{ s *Service }

var (
	descShared      = desc("shared_total", "Messages between replicas: sent, received, unsent (refused by NATS), dropped (came faster than they were taken), again (came when asked for again), repeated, lost (nobody has them any more), bad.", "kind")
	descShareMerges = desc("index_merges_total", "Indexes of other replicas that were fetched and merged.")
	descShareMerged = desc("index_merged_checkpoints_total", "Checkpoints that those brought.")
	descShareSame   = desc("replica_tables", "Other replicas whose table was the same as this one's or another when they last said so.", "same")
)

func (c shareCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descShared, descShareMerges, descShareMerged, descShareSame} {
		ch <- d
	}
}

func (c shareCollector) Collect(ch chan<- prometheus.Metric) {
	if c.s.share == nil {
		return
	}
	gauge, count := into(ch)
	st := c.s.share.Stats(time.Now())
	for kind, n := range map[string]uint64{
		"sent": st.Sent, "received": st.Received, "unsent": st.Unsent, "dropped": c.s.dropped(),
		"again": st.Again, "repeated": st.Repeated, "lost": st.Lost, "bad": st.Bad,
	} {
		count(descShared, n, kind)
	}
	count(descShareMerges, st.Merges)
	count(descShareMerged, st.Merged)
	same := 0
	for _, p := range st.Peers {
		if p.Same {
			same++
		}
	}
	gauge(descShareSame, float64(same), "yes")
	gauge(descShareSame, float64(len(st.Peers)-same), "no")
}

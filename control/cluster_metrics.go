package control

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// clusterCollector tells how the replicas stand; nothing for a service that is alone.
type clusterCollector struct{ s *Service }

var (
	descClusterLeader     = desc("leader", "1 at the replica that leads.")
	descClusterLed        = desc("led", "1 while this replica knows of a leader.")
	descClusterMajority   = desc("majority", "1 while the replicas' documents can be read and written.")
	descClusterReplicas   = desc("replicas", "Replicas heard in the last ten minutes.", "state")
	descClusterAge        = desc("ledger_document_age_seconds", "Age of what the next leader would go on from; at the leader.")
	descClusterForwarded  = desc("leases_forwarded_total", "Reports of gateways that the leader answered for this replica.")
	descClusterUnanswered = desc("leases_unanswered_total", "Reports of gateways that no leader answered.")
)

func (c *clusterCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descClusterLeader, descClusterLed, descClusterMajority, descClusterReplicas, descClusterAge, descClusterForwarded, descClusterUnanswered,
	} {
		out <- d
	}
}

func (c *clusterCollector) Collect(out chan<- prometheus.Metric) {
	gauge, count := into(out)
	st := c.s.clusterStatus(time.Now())
	if st == nil {
		return
	}
	gauge(descClusterLeader, truth(st.Leads))
	gauge(descClusterLed, truth(st.Leader != ""))
	gauge(descClusterMajority, truth(st.Problem == ""))
	present := 0
	for _, r := range st.Replicas {
		if r.Present {
			present++
		}
	}
	gauge(descClusterReplicas, float64(present), "present")
	gauge(descClusterReplicas, float64(len(st.Replicas)-present), "missing")
	if st.Ledger != nil {
		gauge(descClusterAge, st.Ledger.Age)
	}
	count(descClusterForwarded, st.Forwarded)
	count(descClusterUnanswered, st.Unanswered)
}

package control

// slowCredit is what a token in slower memory saves where the policy doesn't say:
// about 0.9 of computing it from CPU, 0.4 from a disk (docs/engines.md).
const slowCredit = 0.5

// housekeepTiers lets gateways ask for prefixes in slower memory, or in the cache of
// one of several ranks, once a worker of their pool has any. They go on asking for as long as this process lives.
func (s *Service) housekeepTiers() {
	s.policyMu.Lock()
	defer s.policyMu.Unlock()
	before := len(s.tiered)
	s.feeds.mu.Lock()
	for _, f := range s.feeds.byRef {
		if !s.tiered[f.key.pool] && f.slow() {
			s.tiered[f.key.pool] = true
			s.log.Info("workers have prefixes that come slower, or not with every request", "pool", f.key.pool, "worker", f.key.address)
		}
	}
	s.feeds.mu.Unlock()
	if d := s.policy.Load(); len(s.tiered) > before {
		s.table.SetPolicy(s.policyText(d), s.exactSection(d), d.off)
	}
}

// slow tells whether the worker has blocks in slower memory, or in the cache of one
// of several ranks that share its port.
func (f *feed) slow() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.sources) > 1 {
		return true
	}
	for _, source := range f.sources {
		if c := source.Status().Map; c.CPU+c.Disk > 0 {
			return true
		}
	}
	return false
}

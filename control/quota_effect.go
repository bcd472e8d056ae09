package control

import (
	"encoding/json"
	"strconv"

	"github.com/warmpath/warmpath/control/api"
	"github.com/warmpath/warmpath/shared/policy"
)

// foresee says what settings would have done in the last minutes, by the leader's memory.
func (s *Service) foresee(before, next *document) *api.QuotaEffect {
	if before.settings == nil {
		return &api.QuotaEffect{Problem: "without settings gateways report nothing: set them while the pools are in mode route or observe, and what would be refused is counted"}
	}
	settings, err := json.Marshal(next.admission)
	if err != nil {
		return &api.QuotaEffect{Problem: err.Error()}
	}
	if s.cluster == nil || s.cluster.Leads() {
		return s.ownEffect(settings)
	}
	effect := &api.QuotaEffect{}
	answer, err := s.askLeader(quotaSubject, append([]byte{askEffect}, settings...))
	if err == nil {
		err = json.Unmarshal(answer, effect)
	}
	switch {
	case err != nil:
		effect.Problem = "no answer from the leader: " + err.Error()
	case effect.Seconds == 0 && effect.Problem == "":
		effect.Problem = "the leader says nothing: it is of an older version"
	}
	return effect
}

// ownEffect is that of this replica's ledger.
func (s *Service) ownEffect(settings []byte) *api.QuotaEffect {
	out := &api.QuotaEffect{Tenants: []api.QuotaTenantEffect{}, Classes: []api.QuotaClassEffect{}, Unknown: []string{}}
	next, err := policy.ParseAdmission(settings)
	if err != nil {
		out.Problem = err.Error()
		return out
	}
	e, ok := s.admission.Foresee(next)
	switch {
	case !ok:
		out.Problem = "there is no ledger at the moment: try again"
		return out
	case e.Seconds == 0:
		out.Problem = "the ledger has just begun: ask again in some minutes"
		return out
	}
	out.Seconds = e.Seconds
	out.Unknown = append(out.Unknown, e.Unknown...)
	for _, t := range e.Tenants {
		out.Tenants = append(out.Tenants, api.QuotaTenantEffect(t))
	}
	for _, c := range e.Classes {
		out.Classes = append(out.Classes, api.QuotaClassEffect{
			Pool: c.Pool, Class: "p" + strconv.Itoa(c.Class), Enforced: c.Enforced, Limit: c.Limit, Value: c.Value,
			Asked: c.Asked, Short: c.Short, WasShort: c.WasShort, Missing: c.Missing,
		})
	}
	return out
}

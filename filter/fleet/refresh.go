package fleet

import (
	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/table"
	"github.com/warmpath/warmpath/shared/wire"
)

// readMeta looks at the meta record and decodes what has a new version.
// Unreadable data is counted and leaves what was known before.
func (f *Fleet) readMeta() {
	value, _, status := abi.SharedData(f.Keys.MetaKey, &f.metaScratch)
	if status != abi.OK || len(value) == 0 {
		return
	}
	meta, err := table.DecodeMeta(value)
	if err != nil {
		f.bad(metrics.BadMeta, err)
		return
	}
	f.meta, f.known = meta, true
	loads := meta.LoadsVersion != f.loadsAt
	if loads {
		f.loadsTime = meta.UpdatedUnixNanos
	}
	if meta.PolicyVersion != f.policyAt && f.readPolicy() {
		// The pools are new: the workers sort into them again.
		f.policyAt = meta.PolicyVersion
		_ = f.setRoster(f.roster)
		loads = true
	}
	if meta.RosterVersion != f.rosterAt && f.read(f.Keys.RosterKey, metrics.BadRoster, f.setRoster) {
		f.rosterAt, loads = meta.RosterVersion, true
	}
	if loads {
		f.read(f.Keys.CachesKey, metrics.BadCaches, f.setCaches)
		f.read(f.Keys.HomesKey, metrics.BadHomes, f.setHomes)
		f.read(f.Keys.CopiesKey, metrics.BadCopies, f.setCopies)
	}
	if loads && f.read(f.Keys.LoadsKey, metrics.BadLoads, f.applyLoads) {
		f.loadsAt = meta.LoadsVersion
	}
	if meta.SetsVersion != f.setsAt && f.read(f.Keys.SetsKey, metrics.BadSets, f.setSets) {
		f.setsAt = meta.SetsVersion
	}
}

// read gets a value and hands it to apply. It answers true also for a value
// that apply refuses: the next version is worth a look, this one is not.
func (f *Fleet) read(key string, kind int, apply func([]byte) error) bool {
	value, _, status := abi.SharedData(key, &f.valueScratch)
	if status != abi.OK && status != abi.NotFound {
		return false
	}
	if err := apply(value); err != nil {
		f.bad(kind, err)
	}
	return true
}

func (f *Fleet) readPolicy() bool {
	return f.read(f.Keys.PolicyKey, metrics.BadPolicy, func(value []byte) error {
		if len(value) == 0 {
			return nil
		}
		set, err := policy.Parse(value)
		if err != nil {
			return err
		}
		// Unreadable, it leaves the pools in approximate mode.
		f.read(f.Keys.ExactKey, metrics.BadExact, func(value []byte) error { return policy.ParseExact(value, set) })
		f.read(f.Keys.AdmissionKey, metrics.BadAdmission, func(value []byte) error {
			settings, err := policy.ParseAdmission(value)
			if err == nil {
				f.admission = settings
			}
			return err
		})
		f.setPolicy(set)
		return nil
	})
}

func (f *Fleet) applyLoads(value []byte) error {
	return f.setLoads(value, f.loadsTime)
}

func (f *Fleet) setSets(value []byte) error {
	if err := wire.ForEachSet(value, func(uint32, []byte) error { return nil }); err != nil {
		return err
	}
	f.sets = append(f.sets[:0], value...)
	return nil
}

func (f *Fleet) set(id uint32) []byte { return wire.FindSet(f.sets, id) }

// bad counts unreadable data and tells the first of each kind.
func (f *Fleet) bad(kind int, err error) {
	f.metrics.Inc(metrics.BadData, kind)
	if f.told&(1<<kind) != 0 {
		return
	}
	f.told |= 1 << kind
	abi.Log(abi.LogError, "warmpath: shared data: "+err.Error()+"; what was known before stays (told once, counted in warmpath.bad_data."+
		metrics.Label(metrics.BadData, kind)+")")
}

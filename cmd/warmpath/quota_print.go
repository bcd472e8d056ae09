package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/warmpath/warmpath/control/api"
)

func printQuota(out io.Writer, q *api.Quota) error {
	if !q.Enabled {
		_, err := fmt.Fprintln(out, "no admission: the policy has no key admission (warmpath quota set gives it one; docs/policy.md says what it takes)")
		return err
	}
	if q.Problem != "" {
		fmt.Fprintln(out, q.Problem)
	}
	if q.Learning {
		fmt.Fprintln(out, "learning: the ledger has just begun; gateways keep what they have, and get no more until all have reported")
	}
	var notes []string
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POOL\tCLASS\tSHARE\tSLOTS\tIN USE\tWAITING\tOLDEST\tPREFILL TOKENS\tREFUSED\tTTFT P99\tOBJECTIVE")
	for i := range q.Pools {
		p := &q.Pools[i]
		if !p.Enforced {
			notes = append(notes, p.Name+": refuses nobody, what would be refused is counted by the gateways (warmpath_would_refuse_total); mode: enforce turns it on")
		}
		for _, c := range p.Classes {
			fmt.Fprintf(w, "%s\t%s\t%.0f %%\t%.1f\t%d\t%d\t%s\t%d\t%d\t%s\t%s\n", p.Name, c.Class, 100*c.Share, c.Part, c.InUse, c.Waiting,
				millis(int64(c.OldestMillis)), c.PrefillTokens, c.Refused, millis(int64(c.TTFTP99Millis)), millis(c.Objective))
		}
		fmt.Fprintf(w, "%s\tall\t\t%s\t%s\t\t\t%s\t\t\t\n", p.Name, limit(p.Slots), booked(p), limitTokens(p.PrefillTokens))
		if !p.Settled {
			notes = append(notes, p.Name+": unsettled, gateways of before the ledger began may hold slots")
		} else if p.Silent > 0 {
			notes = append(notes, fmt.Sprintf("%s: %d slots are of gateways that are not heard", p.Name, p.Silent))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, note := range notes {
		fmt.Fprintln(out, note)
	}
	fmt.Fprintln(out)
	if err := printTenants(out, q.Tenants); err != nil {
		return err
	}
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "GATEWAY\tSTATE\tHEARD\tPOOL\tLEASE\tFLOOR\tIN USE\tWAITING\tDEBIT")
	for _, g := range q.Gateways {
		heard := "never"
		if g.Age >= 0 {
			heard = fmt.Sprintf("%.1f s ago", g.Age)
		}
		for _, p := range g.Pools {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", g.Name, g.State, heard, p.Pool, slots(p.Granted), p.Floor, p.InUse, p.Waiting, slots(p.Debit))
		}
	}
	return w.Flush()
}

func printTenants(out io.Writer, tenants []api.QuotaTenant) error {
	if len(tenants) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TENANT\tWEIGHT\tIN USE\tWAITING\tAT ONCE\tREQUESTS LEFT\tTOKENS LEFT\tGATEWAYS")
	for _, t := range tenants {
		fmt.Fprintf(w, "%s\t%g\t%d\t%d\t%s\t%s\t%s\t%d\n", t.Name, t.Weight, t.InUse, t.Waiting, ofLimit(strconv.FormatUint(t.Debit, 10), t.Concurrency),
			ofLimit(fmt.Sprintf("%.0f", t.RequestsLeft), t.RequestsPerMinute), ofLimit(fmt.Sprintf("%.0f", t.TokensLeft), t.TokensPerMinute), t.Gateways)
	}
	fmt.Fprintln(w, "\t\t\t\t\t\t\t")
	return w.Flush()
}

// ofLimit is a number and the limit it is of.
func ofLimit(n string, limit int) string {
	if limit == 0 {
		return "-"
	}
	return n + " of " + strconv.Itoa(limit)
}

// booked is what gateways have or may have of a pool: leases and what is in use beyond them.
func booked(p *api.QuotaPool) string {
	if p.Slots < 0 {
		return ""
	}
	return strconv.FormatUint(p.Debit, 10) + " leased"
}

func limitTokens(n int64) string {
	if n < 0 {
		return "no limit"
	}
	return "of " + strconv.FormatInt(n, 10)
}

func limit(n int64) string {
	if n < 0 {
		return "no limit"
	}
	return strconv.FormatInt(n, 10)
}

func slots(n uint32) string {
	if n == 1<<32-1 {
		return "no limit"
	}
	return strconv.FormatUint(uint64(n), 10)
}

func millis(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10) + " ms"
}

func printChange(out io.Writer, c *api.QuotaChange) error {
	verb := "changed"
	if c.DryRun {
		verb = "would change"
	}
	if len(c.Changes) == 0 {
		_, err := fmt.Fprintln(out, "nothing "+verb)
		if err != nil || c.Effect == nil {
			return err
		}
		return printEffect(out, c.Effect)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SETTING\tBEFORE\tAFTER")
	for _, s := range c.Changes {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Place, setting(s.Before), setting(s.After))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	plural := "s"
	if len(c.Changes) == 1 {
		plural = ""
	}
	if _, err := fmt.Fprintf(out, "%d setting%s %s\n", len(c.Changes), plural, verb); err != nil || c.Effect == nil {
		return err
	}
	return printEffect(out, c.Effect)
}

// limitUnits are what the limits count.
var limitUnits = map[string]string{
	"concurrency": "at once", "requests_per_minute": "requests a minute", "uncached_tokens_per_minute": "tokens a minute",
	"slots": "slots", "prefill_tokens": "tokens to prefill",
}

// printEffect says what the settings would have done.
func printEffect(out io.Writer, e *api.QuotaEffect) error {
	fmt.Fprintln(out)
	if e.Problem != "" {
		_, err := fmt.Fprintln(out, "what would be refused is not known: "+e.Problem)
		return err
	}
	fmt.Fprintf(out, "With them, of what was asked for in the last %d s (each limit replayed alone, an estimate):\n", e.Seconds)
	if len(e.Tenants) > 0 {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "TENANT\tLIMIT\tASKED FOR UP TO\tBEYOND IT FOR\tREQUESTS\tWOULD BE REFUSED\tWERE REFUSED")
		for _, t := range e.Tenants {
			fmt.Fprintf(w, "%s\t%d %s\t%.0f\t%d s\t%.0f\tabout %.0f (%.0f %%)\t%.0f\n", t.Tenant, t.Value, limitUnits[t.Limit], t.Asked, t.Over,
				t.Requests, t.Refused, 100*t.Refused/max(t.Requests, 1), t.WereRefused)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(out, "no tenant would have met its limits")
	}
	observed := false
	if len(e.Classes) > 0 {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "POOL\tCLASS\tTHE POOL HAS\tTHE CLASS ASKED FOR UP TO\tWAITS OR IS REFUSED FOR\tAS IT IS NOW\tNO ROOM FOR")
		for _, c := range e.Classes {
			mark := ""
			if !c.Enforced {
				mark, observed = "*", true
			}
			fmt.Fprintf(w, "%s%s\t%s\t%.0f %s\t%.0f\t%d s\t%d s\t%.1f %%\n", c.Pool, mark, c.Class, c.Value, limitUnits[c.Limit], c.Asked, c.Short, c.WasShort, 100*c.Missing)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(out, "no class would have been short of room")
	}
	if observed {
		fmt.Fprintln(out, "* this pool refuses nobody: it would only be counted (mode: enforce turns it on)")
	}
	if len(e.Unknown) > 0 {
		const most = 8
		names := strings.Join(e.Unknown[:min(len(e.Unknown), most)], ", ")
		if more := len(e.Unknown) - most; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		fmt.Fprintf(out, "not known, as gateways report only tenants that have limits: %s.\nGive them a limit that they don't reach (concurrency: 1000000) for ten minutes, and ask again.\n", names)
	}
	return nil
}

// setting is a value as JSON, - for none.
func setting(v any) string {
	if v == nil {
		return "-"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// printWatch prints one line for each pool; before is what the line before was of, nil for none.
func printWatch(out io.Writer, q, before *api.Quota, pool string, header bool) error {
	if !q.Enabled {
		return fmt.Errorf("the policy has no key admission (warmpath quota set gives it one)")
	}
	const row = "%-12s %8s %16s %14s %14s %9s %5s %10s  %s\n"
	if header {
		fmt.Fprintf(out, row, "POOL", "SLOTS", "IN USE P0/P1/P2", "WAITING", "REFUSED", "P0 P99", "OPEN", "SHARES %", "STATE")
	}
	found := pool == ""
	for i := range q.Pools {
		p := &q.Pools[i]
		if pool != "" && p.Name != pool {
			continue
		}
		found = true
		var inUse, waiting, refused, shares []uint64
		was := poolOf(before, p.Name)
		for c, of := range p.Classes {
			inUse, waiting = append(inUse, of.InUse), append(waiting, of.Waiting)
			since := uint64(0)
			if was != nil && c < len(was.Classes) && of.Refused > was.Classes[c].Refused {
				since = of.Refused - was.Classes[c].Refused
			}
			refused, shares = append(refused, since), append(shares, percent(of.Share))
		}
		state := "refuses"
		switch {
		case !p.Settled || q.Learning:
			state = "learns"
		case !p.Enforced:
			state = "observes"
		}
		fmt.Fprintf(out, row, p.Name, limit(p.Slots), slashed(inUse), slashed(waiting), slashed(refused), millis(int64(p.Classes[0].TTFTP99Millis)), strconv.FormatFloat(p.Open, 'f', 2, 64), slashed(shares), state)
	}
	if !found {
		return fmt.Errorf("no pool %q (warmpath quota show lists them)", pool)
	}
	return nil
}

// poolOf is the pool of a name, nil for none.
func poolOf(q *api.Quota, name string) *api.QuotaPool {
	if q == nil {
		return nil
	}
	for i := range q.Pools {
		if q.Pools[i].Name == name {
			return &q.Pools[i]
		}
	}
	return nil
}

// historyStep is the seconds of a line of the history.
const historyStep = 10

// printHistory prints what the controllers saw and did, oldest first.
func printHistory(out io.Writer, q *api.Quota) error {
	if q.Problem != "" {
		fmt.Fprintln(out, q.Problem)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "POOL\tSECONDS AGO\tFIRST TOKENS P0/P1/P2\tP0 P99\tOPEN\tSHARES %\tIN USE P0/P1/P2\tWAITING\t")
	for i := range q.Pools {
		p := &q.Pools[i]
		for from := 0; from < len(p.History); from += historyStep {
			step := p.History[from:min(from+historyStep, len(p.History))]
			var count [3]uint64
			worst := uint32(0) // of the seconds' percentiles
			for j := range step {
				worst = max(worst, step[j].P99Millis[0])
				for c := range count {
					count[c] += step[j].Count[c]
				}
			}
			last := &step[len(step)-1]
			var shares [3]uint64
			for c, share := range last.Shares {
				shares[c] = percent(share)
			}
			fmt.Fprintf(w, "%s\t%.0f\t%s\t%s\t%.2f\t%s\t%s\t%s\t\n", p.Name, last.Age, slashed(count[:]), millis(int64(worst)), last.Lend,
				slashed(shares[:]), slashed(last.InUse[:]), slashed(last.Waiting[:]))
		}
	}
	return w.Flush()
}

// slashed are numbers of the classes: 3/1/0.
func slashed(n []uint64) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(strconv.FormatUint(n[i], 10))
	}
	return b.String()
}

func percent(share float64) uint64 { return uint64(100*share + 0.5) }

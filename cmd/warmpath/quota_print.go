package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/warmpath/warmpath/control/api"
)

func printQuota(out io.Writer, q *api.Quota) error {
	if !q.Enabled {
		_, err := fmt.Fprintln(out, "no admission: the policy has no key admission (docs/policy.md says what it takes)")
		return err
	}
	if q.Problem != "" {
		fmt.Fprintln(out, q.Problem)
	}
	if q.Learning {
		fmt.Fprintln(out, "learning: the control service has started anew; gateways keep what they have, and get no more")
	}
	var notes []string
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POOL\tCLASS\tSHARE\tSLOTS\tIN USE\tWAITING\tOLDEST\tPREFILL TOKENS\tREFUSED\tTTFT P99\tOBJECTIVE")
	for i := range q.Pools {
		p := &q.Pools[i]
		mode := "observed"
		if p.Enforced {
			mode = "enforced"
		}
		for _, c := range p.Classes {
			fmt.Fprintf(w, "%s\t%s\t%.0f %%\t%.1f\t%d\t%d\t%s\t%d\t%d\t%s\t%s\n", p.Name, c.Class, 100*c.Share, c.Part, c.InUse, c.Waiting,
				millis(int64(c.OldestMillis)), c.PrefillTokens, c.Refused, millis(int64(c.TTFTP99Millis)), millis(c.Objective))
		}
		fmt.Fprintf(w, "%s\t%s\t\t%s\t%d\t\t\t%s\t\t\t\n", p.Name, mode, limit(p.Slots), p.Debit, limit(p.PrefillTokens))
		if !p.Settled {
			notes = append(notes, p.Name+": unsettled, gateways of before the restart may hold slots")
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
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SETTING\tBEFORE\tAFTER")
	for _, s := range c.Changes {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Place, setting(s.Before), setting(s.After))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%d settings %s\n", len(c.Changes), verb)
	return err
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

// printWatch prints one line for each pool.
func printWatch(out io.Writer, q *api.Quota, pool string, header bool) error {
	if !q.Enabled {
		return fmt.Errorf("the policy has no key admission (warmpath quota set gives it one)")
	}
	const row = "%-12s %8s %17s %17s %10s %6s %17s %6s\n"
	if header {
		fmt.Fprintf(out, row, "POOL", "SLOTS", "IN USE P0/P1/P2", "WAITING", "P0 P99", "OPEN", "SHARES %", "STATE")
	}
	found := pool == ""
	for i := range q.Pools {
		p := &q.Pools[i]
		if pool != "" && p.Name != pool {
			continue
		}
		found = true
		var inUse, waiting, shares string
		for c, of := range p.Classes {
			slash := "/"
			if c == 0 {
				slash = ""
			}
			inUse += slash + strconv.FormatUint(of.InUse, 10)
			waiting += slash + strconv.FormatUint(of.Waiting, 10)
			shares += slash + strconv.Itoa(int(100*of.Share+0.5))
		}
		state := "ok"
		if !p.Settled {
			state = "learns"
		}
		fmt.Fprintf(out, row, p.Name, limit(p.Slots), inUse, waiting, millis(int64(p.Classes[0].TTFTP99Millis)), strconv.FormatFloat(p.Open, 'f', 2, 64), shares, state)
	}
	if !found {
		return fmt.Errorf("no pool %q (warmpath quota show lists them)", pool)
	}
	return nil
}

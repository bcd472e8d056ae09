package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/control/api"
)

// clusterCommand shows how several control services stand.
func clusterCommand() *cobra.Command {
	var (
		c      controlService
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Show who leads, and which control services are there",
		Long: `Shows the control services that act as one, as the one that is asked sees them: who
leads, who was heard lately, whether they can agree, and what the next leader would go
on from (docs/cluster.md).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var st api.Status
			if err := c.ask(cmd.Context(), "/v1/status", &st); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, st.Cluster)
			}
			return printCluster(cmd.OutOrStdout(), st.Cluster)
		},
	}
	c.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "as the API answers it")
	return cmd
}

func printCluster(w io.Writer, c *api.Cluster) error {
	if c == nil {
		_, err := fmt.Fprintln(w, "This control service is alone: it was built into another program.")
		return err
	}
	leader := "nobody leads"
	if c.Leader != "" {
		leader = c.Leader + " leads, term " + c.Term
	}
	fmt.Fprintf(w, "%s; asked: %s; NATS servers: %s\n", leader, c.Name, c.Servers)
	for _, problem := range []struct{ what, why string }{
		{"the replicas can't agree", c.Problem},
		{"the policy that another replica was told isn't in force here", c.PolicyProblem},
		{"the workers that another replica was told aren't in force here", c.WorkersProblem},
	} {
		if problem.why != "" {
			fmt.Fprintf(w, "PROBLEM: %s: %s\n", problem.what, problem.why)
		}
	}
	if !c.Agreed {
		fmt.Fprintln(w, "It hasn't read yet what all agree on, and serves nothing before.")
	}
	if l := c.Ledger; l != nil {
		fmt.Fprintf(w, "ledger: %d gateways to go on from, written %.0f s ago\n", l.Gateways, l.Age)
		if l.Problem != "" {
			fmt.Fprintf(w, "PROBLEM: it can't be written: %s\n", l.Problem)
		}
	}
	fmt.Fprintf(w, "leases by the leader: %d, unanswered: %d; messages dropped: %d\n\n", c.Forwarded, c.Unanswered, c.Dropped)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "REPLICA\tSTATE\tHEARD\tTABLE\tVERSION\tAPI")
	for _, r := range c.Replicas {
		state := "missing"
		switch {
		case r.Leads && r.Present:
			state = "leads"
		case r.Present:
			state = "follows"
		}
		fmt.Fprintf(t, "%s\t%s\t%.0f s ago\t%s\t%s\t%s\n", r.Name, state, r.Age, r.Table, r.Version, r.URL)
	}
	return t.Flush()
}

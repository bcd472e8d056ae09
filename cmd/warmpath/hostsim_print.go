package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/warmpath/warmpath/hostsim/hosttest"
)

// print shows a run to a reader.
func (r *hostsimRun) print(report runReport, f *hosttest.Filter) {
	p := func(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }
	for i, line := range report.Start {
		if i == 0 {
			p("start")
		}
		p("  %s", line)
	}
	for i, o := range report.Requests {
		title := o.Request
		if o.Name != "" {
			title += "  (" + o.Name + ")"
		}
		if i > 0 || len(report.Start) > 0 {
			p("")
		}
		p("%s", title)
		for _, line := range o.Trace {
			p("  %s", line)
		}
		if o.Upstream != nil {
			p("  the upstream got")
			r.printMessage(o.Upstream)
		}
		if o.Client != nil {
			from := ""
			if o.Outcome == "local_reply" {
				if from = " from the filter's side"; o.Details != "" {
					from += " (" + o.Details + ")"
				}
			}
			p("  the client got%s", from)
			r.printMessage(o.Client)
		}
		switch o.Outcome {
		case "held", "cut":
			p("  %s: %s", o.Outcome, o.Details)
		case "unanswered":
			p("  nobody has answered")
		}
	}
	if !r.trace {
		for i, line := range report.Logs {
			if i == 0 {
				p("\nlog")
			}
			line, _, _ = strings.Cut(line, "\n")
			p("  %s", line)
		}
	}
	names := make([]string, 0, len(report.Metrics))
	for name, value := range report.Metrics {
		if value != 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for i, name := range names {
		if i == 0 {
			p("\nmetrics")
		}
		p("  %s %d", name, report.Metrics[name])
	}
	clusters := make([]string, 0, len(r.unknown))
	for cluster := range r.unknown {
		clusters = append(clusters, cluster)
	}
	slices.Sort(clusters)
	for _, cluster := range clusters {
		p("\nThe module called cluster %q, which is not known here: --http-call %s=reply.http answers it.", cluster, cluster)
	}
}

func (r *hostsimRun) printMessage(m *message) {
	for _, h := range m.Headers {
		fmt.Fprintf(r.out, "    %s: %s\n", h[0], h[1])
	}
	if m.Body != "" {
		r.printBody(m.Body)
	}
	for i, h := range m.Trailers {
		if i == 0 {
			fmt.Fprintln(r.out)
		}
		fmt.Fprintf(r.out, "    > %s: %s\n", h[0], h[1])
	}
}

func (r *hostsimRun) printBody(body string) {
	whole := len(body)
	const most = 2000
	note := ""
	if len(body) > most {
		body, note = body[:most], fmt.Sprintf("\n... %d bytes in all (--json has them)", whole)
	}
	fmt.Fprintf(r.out, "\n    %s\n", strings.ReplaceAll(strings.TrimSuffix(strings.ToValidUTF8(body, "?"), "\n")+note, "\n", "\n    "))
}

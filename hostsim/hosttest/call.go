package hosttest

import (
	"fmt"
	"strings"

	"github.com/warmpath/warmpath/hostsim"
)

// Call is an http_call of the filter that waits for its answer.
type Call struct {
	*hostsim.HTTPCall
	f *Filter
}

// Call takes the oldest unanswered http_call to a cluster without a handler. The
// test fails if there is none.
func (f *Filter) Call(cluster string) *Call {
	f.t.Helper()
	var others []string
	for _, c := range f.calls.Pending() {
		if c.Cluster == cluster {
			return f.take(c)
		}
		others = append(others, c.Cluster)
	}
	if _, known := f.set.clusters[cluster]; !known {
		f.t.Fatalf("hosttest: cluster %q is unknown to the host; load with hosttest.Cluster(%q, nil)%s", cluster, cluster, f.story(0))
	}
	f.t.Fatalf("hosttest: no http_call to %q waits (waiting: %s)%s", cluster, or(strings.Join(others, ", "), "none"), f.story(0))
	return nil
}

// NoCalls fails the test if an http_call waits for an answer.
func (f *Filter) NoCalls() *Filter {
	f.t.Helper()
	for _, c := range f.calls.Pending() {
		f.t.Errorf("an http_call to %s waits: %s%s", c.Cluster, describe(c.Headers), f.story(0))
	}
	return f
}

// take removes a call from those that wait.
func (f *Filter) take(c *hostsim.HTTPCall) *Call {
	f.calls.Remove(c)
	return &Call{c, f}
}

// Answer answers with a status, a body and fields (name, value...), and lets the
// filter go on.
func (c *Call) Answer(status int, body string, headers ...string) {
	c.f.say("", fmt.Sprintf("cluster %s answers %d %s", c.Cluster, status, quote(body)))
	h := Header(append([]string{":status", fmt.Sprint(status)}, headers...)...)
	c.Reply(h, []byte(body), nil)
	c.f.settle()
}

// AnswerDead answers as Envoy does for a cluster without a reachable host: an
// ordinary 503 with headers and a body.
func (c *Call) AnswerDead() {
	c.f.say("", "cluster "+c.Cluster+" is dead")
	c.ReplyDead()
	c.f.settle()
}

// Break breaks the connection within the reply: the filter gets a response
// without headers.
func (c *Call) Break() {
	c.f.say("", "cluster "+c.Cluster+" breaks off")
	c.Fail()
	c.f.settle()
}

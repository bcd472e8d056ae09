package conformance

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/warmpath/warmpath/hostsim"
)

// event is one thing that was seen: a line of a module, or something that came
// out of the proxy.
type event struct {
	actor  string // client, upstream, control; "" for a module
	stream string // of the wire; for a module the VM's name
	line   string // of a module
	Action        // of the wire
}

// journal collects events from whoever sees them.
type journal struct {
	mu     sync.Mutex
	events []event
	total  int
}

func (j *journal) add(e event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.Data = slices.Clone(e.Data)
	j.events = append(j.events, e)
	j.total++
}

// seen is the number of events so far.
func (j *journal) seen() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.total
}

// peek returns the events since the last take.
func (j *journal) peek() []event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.events)
}

func (j *journal) take() []event {
	j.mu.Lock()
	defer j.mu.Unlock()
	events := j.events
	j.events = nil
	return events
}

// hidden are fields that a proxy adds on the wire and no filter has a say in.
func hidden(key string) bool {
	return key == "date" || key == "server" || key == "x-forwarded-proto" || key == "x-forwarded-for" ||
		key == "x-request-id" || key == "transfer-encoding" || strings.HasPrefix(key, "x-envoy-")
}

var (
	loopback = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	arrows   = map[string]string{upstream: "-> upstream", control: "-> control", client: "<- client"}
)

// transcript writes down what followed from a step. What happens on one side of
// the proxy is in order; between sides, and between VMs, no order can be seen
// from outside, so lines stand by side: modules, upstream, control server,
// client.
func transcript(events []event, setup *Setup) []string {
	sides := []string{"", upstream, control, client}
	slices.SortStableFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(slices.Index(sides, a.actor), slices.Index(sides, b.actor)), cmp.Compare(a.stream, b.stream))
	})
	var lines []string
	for i := 0; i < len(events); i++ {
		e := events[i]
		if e.actor == "" {
			if e.stream == "main" && !setup.ShowMain {
				continue
			}
			line := e.line
			if setup.ShowMain {
				line = e.stream + ": " + line
			}
			lines = append(lines, setup.number(loopback.ReplaceAllString(line, "127.0.0.1:PORT")))
			continue
		}
		for e.Kind == Data && !e.End && i+1 < len(events) && events[i+1].Kind == Data &&
			events[i+1].actor == e.actor && events[i+1].stream == e.stream {
			i++
			e.Data, e.End = append(e.Data, events[i].Data...), events[i].End
		}
		if e.Kind == Headers && !e.End && i+1 < len(events) && events[i+1].Kind == Data && len(events[i+1].Data) == 0 &&
			events[i+1].End && events[i+1].actor == e.actor && events[i+1].stream == e.stream {
			i++ // an empty last piece is no news on the wire
			e.End = true
		}
		lines = append(lines, e.text())
	}
	return lines
}

// counted matches numbers that a whole process counts, whoever else it serves.
var counted = regexp.MustCompile(`\b(cas|queue) (\d+)$`)

// number gives such numbers names in the order in which a scenario meets them.
func (s *Setup) number(line string) string {
	return counted.ReplaceAllStringFunc(line, func(match string) string {
		kind, _, _ := strings.Cut(match, " ")
		if match == "cas 0" || match == "queue 0" {
			return match
		}
		at := slices.Index(s.counted[kind], match)
		if at < 0 {
			if s.counted == nil {
				s.counted = map[string][]string{}
			}
			s.counted[kind] = append(s.counted[kind], match)
			at = len(s.counted[kind]) - 1
		}
		return fmt.Sprintf("%s #%d", kind, at+1)
	})
}

func (e event) text() string {
	s := arrows[e.actor]
	if e.stream != "" {
		s += " " + e.stream
	}
	switch e.Kind {
	case Headers:
		s += " " + fieldText(e.Headers)
	case Trailers:
		return s + " trailers " + fieldText(e.Headers)
	case Data:
		if len(e.Data) > 200 {
			s += fmt.Sprintf(" %d bytes", len(e.Data))
		} else {
			s += " " + strconv.Quote(string(e.Data))
		}
	case Reset:
		return s + " reset"
	case Disconnect:
		return s + " disconnect"
	}
	if e.End {
		s += " end"
	}
	return s
}

func fieldText(fields []hostsim.Header) string {
	var parts []string
	for _, f := range fields {
		if !hidden(f.Key) && f.Key != streamHeader {
			parts = append(parts, f.Key+": "+f.Value)
		}
	}
	return loopback.ReplaceAllString("{"+strings.Join(parts, ", ")+"}", "127.0.0.1:PORT")
}

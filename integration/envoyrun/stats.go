package envoyrun

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Stats maps the full name of a counter or gauge to its value.
type Stats map[string]int64

// Stats reads the counters and gauges whose names match a regular expression.
// Histograms are left out.
func (p *Proxy) Stats(ctx context.Context, pattern string) (Stats, error) {
	if _, err := regexp.Compile(pattern); err != nil {
		return nil, fmt.Errorf("pattern of stats: %w", err)
	}
	text, err := p.Admin(ctx, "/stats?filter="+url.QueryEscape(pattern))
	if err != nil {
		return nil, err
	}
	stats := Stats{}
	for _, line := range strings.Split(text, "\n") {
		name, value, ok := strings.Cut(line, ": ")
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			stats[name] = n
		}
	}
	return stats, nil
}

// Sum adds up all values whose names start with a prefix.
func (s Stats) Sum(prefix string) (sum int64) {
	for name, value := range s {
		if strings.HasPrefix(name, prefix) {
			sum += value
		}
	}
	return sum
}

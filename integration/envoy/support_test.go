//go:build envoy

package envoy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/warmpath/warmpath/integration/engines"
)

// reader hides the length of a body when it is to be sent in chunks.
func reader(body []byte, chunked bool) io.Reader {
	if chunked {
		return io.MultiReader(bytes.NewReader(body))
	}
	return bytes.NewReader(body)
}

func sha256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func workersOf(requests []engines.Request) (addresses []string) {
	for _, r := range requests {
		addresses = append(addresses, r.Worker)
	}
	return addresses
}

// controlIdle says what control believes to be in flight.
func (r *rig) controlIdle() error {
	status := r.control.Status()
	for _, w := range status.Workers {
		if w.InFlight != 0 {
			return fmt.Errorf("control counts %d requests in flight at %s", w.InFlight, w.Address)
		}
	}
	for _, g := range status.Gateways {
		if g.InFlight != 0 {
			return fmt.Errorf("control counts %d requests in flight at gateway %s", g.InFlight, g.Name)
		}
	}
	return nil
}

// filterStat reads one counter of Envoy's watch on the filter file. The admin
// interface does not answer while Envoy compiles a module.
func (r *rig) filterStat(name string) (int64, error) {
	stats, err := r.proxy.Stats(r.t.Context(), `extension_config_discovery.*`+name+`$`)
	if err != nil {
		return 0, err
	}
	return stats.Sum(""), nil
}

package control

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/control/discovery"
)

// TestTheREADMEShowsWhatIsAccepted reads the YAML of README.md as a user would,
// and holds the defaults it names.
func TestTheREADMEShowsWhatIsAccepted(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```yaml\n")
	if len(blocks) != 3 {
		t.Fatalf("%d YAML blocks", len(blocks)-1)
	}
	block := func(i int) string { s, _, _ := strings.Cut(blocks[i], "```"); return s }

	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	shown, err := ParseConfig("README.md", []byte(strings.NewReplacer("/etc/warmpath/token", token, "/etc/warmpath/heartbeat-token", token).Replace(block(1))))
	if err != nil {
		t.Fatal(err)
	}
	shown = shown.withDefaults()
	plain := Config{}.withDefaults()
	for name, pair := range map[string][2]any{
		"listen":            {shown.Listen, plain.Listen},
		"read_interval":     {shown.ReadInterval, plain.ReadInterval},
		"coalesce_interval": {shown.CoalesceInterval, plain.CoalesceInterval},
		"loads_interval":    {shown.LoadsInterval, plain.LoadsInterval},
		"state_interval":    {shown.StateInterval, plain.StateInterval},
		"learn":             {shown.Learn, plain.Learn},
		"heal_after":        {shown.HealAfter, plain.HealAfter},
		"metrics_interval":  {shown.Health.Metrics, discovery.DefaultMetrics},
		"interval_down":     {shown.Health.IntervalDown, 500 * time.Millisecond},
		"adapters_interval": {shown.Discovery.AdaptersInterval, plain.Discovery.AdaptersInterval},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: README says %v, the default is %v", name, pair[0], pair[1])
		}
	}
	if d := shown.Discovery; len(d.DNS) != 2 || len(d.Kubernetes) != 3 {
		t.Fatalf("%+v", d)
	}
	for _, c := range shown.Discovery.DNS {
		if err := c.Check(); err != nil {
			t.Error(err)
		}
	}
	for _, c := range shown.Discovery.Kubernetes {
		if err := c.Check(); err != nil {
			t.Error(err)
		}
	}
	dns, defaults := shown.Discovery.DNS[0], discovery.DNS{}.WithDefaults()
	if dns.Interval != defaults.Interval || dns.MinInterval != defaults.MinInterval || dns.Timeout != defaults.Timeout || dns.EmptyAfter != defaults.EmptyAfter || dns.ResolvConf != defaults.ResolvConf {
		t.Errorf("README says %+v, the defaults are %+v", dns, defaults)
	}
	specs, err := discovery.Parse("README.md", []byte(block(2)))
	if err != nil || len(specs) != 1 || specs[0].CapacityTokens != 192000 {
		t.Errorf("%v %v", specs, err)
	}
}

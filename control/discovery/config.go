package discovery

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// DNS is the configuration of one source of package dns.
type DNS struct {
	// Name has an A or AAAA record for each worker, on Port.
	Name string `yaml:"name"`
	Port int    `yaml:"port"`
	// SRV has an SRV record for each worker, with its port; instead of Name.
	SRV string `yaml:"srv"`
	// Server is the name server's ip:port; those of ResolvConf when empty.
	Server     string `yaml:"server"`
	ResolvConf string `yaml:"resolv_conf"` // /etc/resolv.conf
	// Interval is the longest time between two questions; an answer whose TTL is
	// shorter is asked for again when it ends. 30 s.
	Interval time.Duration `yaml:"interval"`
	// MinInterval bounds that from below. 1 s.
	MinInterval time.Duration `yaml:"min_interval"`
	// Timeout of one question. 2 s.
	Timeout time.Duration `yaml:"timeout"`
	// EmptyAfter is how long the answer must have been that there is nobody
	// before it is believed. 30 s.
	EmptyAfter time.Duration `yaml:"empty_after"`
	Template   `yaml:",inline"`
}

// Kubernetes is the configuration of one source of package kubernetes: the pods
// of a label selector, the endpoints of a Service, or an InferencePool.
type Kubernetes struct {
	Namespace string `yaml:"namespace"`
	// One of these three: a label selector, a Service's name, an InferencePool's.
	Pods          string `yaml:"pods"`
	Service       string `yaml:"service"`
	InferencePool string `yaml:"inference_pool"`
	// Ports of a pod, one worker each: the data-parallel ranks of one engine.
	Ports []uint16 `yaml:"ports"`
	// Port is the name or number of the Service's port, when it has several.
	Port string `yaml:"port"`
	// Kubeconfig and Context name a cluster; the one that the process runs in when
	// both are empty.
	Kubeconfig string `yaml:"kubeconfig"`
	Context    string `yaml:"context"`
	Template   `yaml:",inline"`
}

// WithDefaults fills in what is left out.
func (c DNS) WithDefaults() DNS {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.Interval, 30*time.Second)
	def(&c.MinInterval, min(time.Second, c.Interval))
	def(&c.Timeout, 2*time.Second)
	def(&c.EmptyAfter, 30*time.Second)
	if c.ResolvConf == "" {
		c.ResolvConf = "/etc/resolv.conf"
	}
	return c
}

// Check finds what can't work.
func (c DNS) Check() error {
	c = c.WithDefaults()
	var errs []error
	bad := func(field, what, remedy string) {
		errs = append(errs, Problem{Source: "discovery.dns", Field: field, What: what, Remedy: remedy})
	}
	switch {
	case (c.Name == "") == (c.SRV == ""):
		bad("name", "one of name and srv is needed", "name with port for A and AAAA records, srv for SRV records")
	case c.Name != "" && (c.Port < 1 || c.Port > 65535):
		bad("port", fmt.Sprintf("%d is not a port", c.Port), "addresses have none: write the engines' port")
	case c.SRV != "" && c.Port != 0:
		bad("port", "given beside srv", "SRV records have ports; leave it out")
	}
	for _, d := range []struct {
		field     string
		value     time.Duration
		low, high time.Duration
	}{
		{"interval", c.Interval, 100 * time.Millisecond, time.Hour},
		{"min_interval", c.MinInterval, 50 * time.Millisecond, c.Interval},
		{"timeout", c.Timeout, 50 * time.Millisecond, time.Minute},
		{"empty_after", c.EmptyAfter, 0, time.Hour},
	} {
		if d.value < d.low || d.value > d.high {
			bad(d.field, fmt.Sprintf("%v is outside %v..%v", d.value, d.low, d.high), "leave it out for the default")
		}
	}
	if err := c.Template.Check(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// String names the source.
func (c DNS) String() string {
	if c.SRV != "" {
		return "dns srv " + c.SRV
	}
	return "dns " + c.Name + ":" + strconv.Itoa(c.Port)
}

// Check finds what can't work.
func (c Kubernetes) Check() error {
	var errs []error
	bad := func(field, what, remedy string) {
		errs = append(errs, Problem{Source: "discovery.kubernetes", Field: field, What: what, Remedy: remedy})
	}
	if c.Namespace == "" {
		bad("namespace", "missing", "name the namespace of the workers; one item each for several")
	}
	kinds := 0
	for _, kind := range []string{c.Pods, c.Service, c.InferencePool} {
		if kind != "" {
			kinds++
		}
	}
	if kinds != 1 {
		bad("pods", fmt.Sprintf("%d of pods, service and inference_pool are given", kinds), "give one of them")
	}
	if c.Pods != "" && len(c.Ports) == 0 {
		bad("ports", "missing", "write the engines' port; several are ranks of one engine")
	}
	if c.Pods == "" && len(c.Ports) > 0 {
		bad("ports", "given without pods", "a Service's port goes into port, an InferencePool names its own")
	}
	if c.Port != "" && c.Service == "" {
		bad("port", "given without service", "pods have ports, a list; an InferencePool names its own")
	}
	if slices.Contains(c.Ports, 0) {
		bad("ports", "0 is not a port", "write 1 to 65535")
	}
	if err := c.Template.Check(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// String names the source.
func (c Kubernetes) String() string {
	what := "pods " + c.Namespace + " " + c.Pods
	switch {
	case c.Service != "":
		what = "service " + c.Namespace + "/" + c.Service
		if c.Port != "" {
			what += ":" + c.Port
		}
	case c.InferencePool != "":
		what = "inferencepool " + c.Namespace + "/" + c.InferencePool
	}
	if c.Context != "" {
		what += " in " + c.Context
	}
	return "kubernetes " + what
}

package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// envoyProxy is one scenario in a running Envoy.
type envoyProxy struct {
	e        *Envoy
	journal  *journal
	scenario string
	setup    *Setup
	vmIDs    map[string]bool       // of all its plugins so far; guarded by e.mu
	ports    map[string]int        // by plugin
	peers    map[string]clientSide // by plugin
}

// clientSide is a client's connection.
type clientSide interface {
	do(stream string, a Action) error
	close()
}

// moduleLine takes "<prefix>: <message>". The prefix ends with the vm_id; the
// plugin's name is not in the lines of a root context.
func (p *envoyProxy) moduleLine(thread, text string) {
	prefix, message, ok := strings.Cut(text, ": ")
	words := strings.Fields(prefix)
	if !ok || len(words) == 0 || p.setup == nil {
		return
	}
	vmID := words[len(words)-1]
	if !p.vmIDs[vmID] {
		return // of the scenario before
	}
	vm := "worker_0"
	if thread == fmt.Sprint(p.e.cmd.Process.Pid) {
		vm = "main"
	}
	p.journal.add(event{stream: vm, line: message})
}

// known makes the lines of the plugins' VMs the scenario's own.
func (p *envoyProxy) known(s *Setup) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	p.setup = s
	if p.vmIDs == nil {
		p.vmIDs = map[string]bool{}
	}
	for _, pl := range s.Plugins {
		p.vmIDs[pl.VMID] = true
	}
}

func (p *envoyProxy) start(ctx context.Context, s *Setup) error {
	p.known(s)
	var listeners []any
	for _, pl := range s.Plugins {
		if err := p.e.put(p.e.filterPath(p.scenario, pl), p.e.filterConfig(p.scenario, pl)); err != nil {
			return err
		}
		port, err := freePort()
		if err != nil {
			return err
		}
		l := p.e.listenerOf(p.scenario, s, pl, port)
		l["@type"] = typePrefix + "config.listener.v3.Listener"
		listeners = append(listeners, l)
	}
	if err := p.e.put(p.e.path("lds.json"), tree{"resources": listeners}); err != nil {
		return err
	}
	for _, pl := range s.Plugins {
		if err := p.inForce(ctx, pl, 0, 0); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return p.e.until(ctx, "the listeners", func() (bool, error) {
		ports, err := p.e.ports(ctx)
		if err != nil {
			return false, err
		}
		p.ports = map[string]int{}
		for _, pl := range s.Plugins {
			if port := ports[resourceName(p.scenario, pl)]; port != 0 {
				p.ports[pl.Name] = port
			}
		}
		return len(p.ports) == len(s.Plugins), nil
	})
}

// outcomes are how often a plugin's configuration was accepted and refused.
func (p *envoyProxy) outcomes(ctx context.Context, pl *PluginSetup) (accepted, refused int, err error) {
	name := "extension_config_discovery.http_filter." + resourceName(p.scenario, pl) + "."
	stats, err := p.e.stats(ctx, "^"+regexp.QuoteMeta(name)+"config_")
	return stats[name+"config_reload"], stats[name+"config_fail"], err
}

// inForce waits for more outcomes than the given.
func (p *envoyProxy) inForce(ctx context.Context, pl *PluginSetup, accepted, refused int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // the first compiles the module
	defer cancel()
	return p.e.until(ctx, "the plugin "+pl.Name, func() (bool, error) {
		ok, bad, err := p.outcomes(ctx, pl)
		switch {
		case err != nil:
			return false, err
		case bad > refused:
			return false, fmt.Errorf("%w: see envoy's log", errRefused)
		}
		return ok > accepted, nil
	})
}

func (p *envoyProxy) reconfigure(ctx context.Context, s *Setup, which int) error {
	p.known(s)
	pl := s.Plugins[which]
	accepted, refused, err := p.outcomes(ctx, pl)
	if err != nil {
		return err
	}
	if err := p.e.put(p.e.filterPath(p.scenario, pl), p.e.filterConfig(p.scenario, pl)); err != nil {
		return err
	}
	return p.inForce(ctx, pl, accepted, refused)
}

func (p *envoyProxy) act(_ context.Context, actor string, a Action) error {
	switch actor {
	case control:
		return p.e.control.act(a)
	case upstream:
		if p.setup.HTTP1 {
			return p.e.upstream1.act(a)
		}
		return p.e.upstream.act(a)
	}
	plugin, _, _ := strings.Cut(a.Stream, ".")
	if p.ports[plugin] == 0 {
		if len(p.setup.Plugins) > 1 {
			return fmt.Errorf("stream %q: its name begins with none of the plugins", a.Stream)
		}
		plugin = p.setup.Plugins[0].Name
	}
	c := p.peers[plugin]
	if c == nil {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.ports[plugin]))
		if err != nil {
			return err
		}
		if c, err = dialed(conn, p.setup.HTTP1, p.journal); err != nil {
			return err
		}
		p.peers[plugin] = c
	}
	if a.Kind == Disconnect {
		delete(p.peers, plugin)
		c.close()
		return nil
	}
	return c.do(a.Stream, a)
}

func (p *envoyProxy) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *envoyProxy) metrics(ctx context.Context, prefix string) ([]string, error) {
	if err := p.settle(ctx, p.journal, nil); err != nil {
		return nil, err
	}
	stats, err := p.e.stats(ctx, `^wasmcustom\.`+regexp.QuoteMeta(prefix))
	if err != nil {
		return nil, err
	}
	var lines []string
	for name, value := range stats {
		lines = append(lines, fmt.Sprintf("%s %d", strings.TrimPrefix(name, "wasmcustom."), value))
	}
	slices.Sort(lines)
	return lines, nil
}

// Limits of settling: quiet is how long nothing must happen, quietNew the same
// when there is nothing to compare with, patience how long what is expected may
// take.
const (
	quiet    = 30 * time.Millisecond
	quietNew = 120 * time.Millisecond
	patience = 3 * time.Second
)

// settle waits until the worker has answered a request that came after
// everything else, and no event has come for a while.
func (p *envoyProxy) settle(ctx context.Context, j *journal, done func([]event) bool) error {
	if p.setup == nil {
		return nil
	}
	begin, last, seen := time.Now(), time.Now(), -1
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return p.e.until(ctx, "quiet", func() (bool, error) {
		if _, err := p.e.get(ctx, p.e.barrierURL); err != nil && !errors.Is(err, context.Canceled) {
			return false, fmt.Errorf("the worker does not answer: %w", err)
		}
		now := time.Now()
		if n := j.seen(); n != seen {
			seen, last = n, now
			return false, nil
		}
		switch {
		case p.e.Recording:
			return now.Sub(last) > quietNew, nil
		case done == nil || done(j.peek()):
			return now.Sub(last) > quiet, nil
		}
		return now.Sub(last) > quietNew && now.Sub(begin) > patience, nil
	})
}

// stop closes the client's connections and takes the listeners away.
func (p *envoyProxy) stop() {
	for _, c := range p.peers {
		c.close()
	}
	if p.setup == nil {
		return
	}
	_ = p.e.put(p.e.path("lds.json"), tree{"resources": []any{}})
	for _, pl := range p.setup.Plugins {
		os.Remove(p.e.filterPath(p.scenario, pl))
	}
}

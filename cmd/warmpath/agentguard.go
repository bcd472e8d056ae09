package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/warmpath/warmpath/agent"
	"github.com/warmpath/warmpath/agent/guard"
)

const guardHelp = `
With --guard the agent also stands in front of the engine, and is the worker that
the worker list and the gateways know:

  gateway --> agent --guard :8001 --> engine 127.0.0.1:8000
     ^            |  lets in what the engine can carry, by its own numbers (running,
     |            |  waiting, KV cache) 4 to 10 times a second and what was let in since
     +------------+  refuses the rest at once (x-warmpath-refused): the gateway sends it
                     to its second choice, once

Who has to wait does so by class (--class-header: P0 and P1 share 7 to 3, P2 takes
what they leave), within a class fairly by tenant (--tenant-header), and never longer
than --queue-wait. Long prompts wait while the KV cache is full (--memory), others
pass them. Streams pass byte for byte, a client that leaves ends its request at the
engine, bodies are never edited. Everything that is no completion passes untouched;
the engine's /metrics gets the guard's at its end.

SIGTERM: /readyz and the heartbeats say so, waiting and new requests are refused and
so served elsewhere, running ones finish, and after --drain what is left is cut with
an error event. A second SIGTERM ends at once.`

// guardFlags are the settings of agent --guard.
type guardFlags struct {
	on     bool
	listen string
	waits  []time.Duration
	memory []float64
	queue  int // MiB
	guard.Config
}

func (g *guardFlags) register(f *pflag.FlagSet) {
	f.BoolVar(&g.on, "guard", false, "stand in front of the engine too")
	f.StringVar(&g.listen, "guard-listen", ":8001", "where requests come in")
	f.StringVar(&g.ClassHeader, "class-header", "", "header with a request's class, p0 to p2 or 0 to 2 (X-Vllm-Priority where the policy has engine_priority_header); only gateways may set it")
	f.StringVar(&g.TenantHeader, "tenant-header", "", "header that names whose a request is")
	f.IntVar(&g.Limits.EngineQueue, "engine-queue", 8, "how many may wait in the engine's own queue, beyond its batch")
	f.DurationVar(&g.Limits.PrefillAhead, "prefill-ahead", time.Second, "how long the prompts at the engine may take to compute")
	f.IntVar(&g.Limits.LongPromptTokens, "long-prompt", 2048, "tokens from which a prompt is long (four bytes each)")
	f.Float64SliceVar(&g.memory, "memory", []float64{0.9, 0.8}, "shares of the KV cache held by running requests: long prompts wait from the first until below the second")
	f.IntVar(&g.Limits.QueueRequests, "queue-requests", 256, "how many of a class may wait")
	f.IntVar(&g.queue, "queue-mib", 64, "how much of their bodies is held, in MiB")
	f.DurationSliceVar(&g.waits, "queue-wait", []time.Duration{time.Second, 5 * time.Second, 20 * time.Second}, "how long P0, P1 and P2 may wait")
	f.DurationVar(&g.TokenTimeout, "token-timeout", time.Minute, "longest silence of the engine within an answer")
}

func (g *guardFlags) role() string {
	if g.on {
		return "guard"
	}
	return "agent of"
}

// open makes the guard that cfg's agent serves.
func (g *guardFlags) open(cfg *agent.Config) error {
	if !g.on {
		return nil
	}
	if len(g.waits) != len(g.Limits.QueueWait) {
		return fmt.Errorf("--queue-wait has %d times: give three, for P0, P1 and P2", len(g.waits))
	}
	if min(g.Limits.EngineQueue, g.Limits.LongPromptTokens, g.Limits.QueueRequests, g.queue) < 1 || min(g.Limits.PrefillAhead, g.TokenTimeout, slices.Min(g.waits)) <= 0 {
		return errors.New("--engine-queue, --prefill-ahead, --long-prompt, --queue-requests, --queue-mib, --queue-wait and --token-timeout have to be above 0")
	}
	if len(g.memory) != 2 {
		return fmt.Errorf("--memory has %d shares: give two, the one from which long prompts wait and the one below which they don't", len(g.memory))
	}
	copy(g.Limits.QueueWait[:], g.waits)
	g.Limits.MemoryHigh, g.Limits.MemoryLow = g.memory[0], g.memory[1]
	g.Limits.QueueBytes, g.Limits.MaxRunning = int64(g.queue)<<20, cfg.MaxRunning
	g.Engine, g.MetricsPath, g.Logger = cfg.Engine, cfg.MetricsPath, cfg.Logger
	var err error
	if cfg.Guard, err = guard.New(g.Config); err != nil {
		return err
	}
	if cfg.GuardListener, err = net.Listen("tcp", g.listen); err != nil {
		return fmt.Errorf("listen on %s: %w (choose a free address with --guard-listen)", g.listen, err)
	}
	return nil
}

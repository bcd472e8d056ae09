package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// measureCell measures one cell. Every cell has a process of its own, so that
// memory and CPU time are its own: Envoy is one anyway, and for wazero this
// program runs itself.
func measureCell(ctx context.Context, o options, b *builder, w *workload, host, way string, vms int) (*cell, error) {
	module, err := b.guest(ctx, w.size)
	if err != nil {
		return nil, err
	}
	if host == hostWazero {
		return runChild(ctx, o, module, w.size, way, vms)
	}
	c := &cell{Host: host, Way: way, VMs: vms, Entries: w.size}
	p, err := startEnvoy(ctx, b.envoy, module, settings(w.bits, way), vms, 2*vms)
	if err != nil {
		return nil, err
	}
	defer p.close()
	return c, measureProxy(ctx, o, w, p, c)
}

// childFlag makes this program measure one cell in wazero and print its JSON.
const childFlag = "-cell"

// order is what a child is asked for.
type order struct {
	Options options
	Module  string
	Entries int
	Way     string
	VMs     int
}

func runChild(ctx context.Context, o options, module string, entries int, way string, vms int) (*cell, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	text, err := json.Marshal(order{Options: o, Module: module, Entries: entries, Way: way, VMs: vms})
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, childFlag, string(text))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("measure in a process of its own: %w\n%s", err, stderr.String())
	}
	c := &cell{}
	if err := json.Unmarshal(out, c); err != nil {
		return nil, fmt.Errorf("read the cell's figures: %w", err)
	}
	return c, nil
}

// measureChild does what runChild asked for.
func measureChild(ctx context.Context, text string) (*cell, error) {
	var work order
	if err := json.Unmarshal([]byte(text), &work); err != nil {
		return nil, fmt.Errorf("read the order %s: %w", strconv.Quote(text), err)
	}
	w := newWorkload(work.Entries)
	p, err := startWazero(ctx, work.Module, settings(w.bits, work.Way), work.VMs)
	if err != nil {
		return nil, err
	}
	defer p.close()
	c := &cell{Host: hostWazero, Way: work.Way, VMs: work.VMs, Entries: work.Entries}
	return c, measureProxy(ctx, work.Options, w, p, c)
}

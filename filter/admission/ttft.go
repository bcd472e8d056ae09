package admission

import (
	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/shared/wire"
)

// countTTFT notes a time to first token; it gets into shared data at a tick.
func (g *Gate) countTTFT(p *pool, class uint8, millis uint64) {
	if p.ttft[class] == nil {
		p.ttft[class] = new([wire.TTFTBuckets]uint32)
	}
	p.ttft[class][wire.TTFTBucket(uint32(min(millis, 1<<31)))]++
	p.measured = true
}

// flushTTFT adds this VM's times to the gateway's.
func (g *Gate) flushTTFT(p *pool) {
	if !p.measured {
		return
	}
	process := g.process()
	if process == 0 {
		return
	}
	p.measured = false
	for class, counts := range p.ttft {
		if counts == nil {
			continue
		}
		key := g.fleet.Keys.TTFT(p.index, uint8(class))
		for range casTries {
			sums := *counts
			cas, ok := g.read(key, func(b []byte) bool {
				return wire.ForEachLatency(b, func(l *wire.Latency) error {
					for i, n := range l.Counts {
						sums[i] += n
					}
					return nil
				}) == nil
			})
			if !ok {
				break
			}
			g.out = wire.AppendLatency(g.out[:0], &wire.Latency{Pool: p.index, Class: uint8(class), Nonce: process, Counts: &sums})
			if abi.SetSharedData(key, g.out, cas) != abi.CASMismatch {
				break
			}
		}
		*counts = [wire.TTFTBuckets]uint32{}
	}
}

// AppendLatency appends the gateway's times, as the payload of a LATENCY section.
func (g *Gate) AppendLatency(b []byte) []byte {
	for _, p := range g.fleet.PolicyPools() {
		for class := range uint8(wire.BypassClass) {
			value, _, status := abi.SharedData(g.fleet.Keys.TTFT(p.Index, class), &g.scratch)
			if status == abi.OK {
				b = append(b, value...)
			}
		}
	}
	return b
}

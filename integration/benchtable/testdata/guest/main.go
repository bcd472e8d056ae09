// Command guest is the module that package benchtable compares tables with. It
// answers every request itself:
//
//	POST /lookup   checkpoints (u64 fingerprint, u32 end; bit 31 of end: a turn
//	               ends) -> the answer of answer(): how long the lookup took and
//	               a hash of the matches
//	POST /nothing  the same body, no lookup: what all the rest costs
//	POST /changes  u64 sequence, then entries; one without refs is a removal
//
// The configuration, {"bits":12,"copy":1}, says where the table is: in pages of
// shared data, or a copy in every VM. Both ways are the same module, so that
// code size is no part of the comparison; the tag million makes room for a
// million entries in the copy.
package main

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"
	"github.com/tidwall/gjson"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/shared/table"
)

const (
	// tick is the module's.
	tick = 100 * time.Millisecond
	// checkpointBytes is one checkpoint of a request.
	checkpointBytes = 12
	turnEnd         = 1 << 31
	// answerBytes is the answer to /lookup and /nothing.
	answerBytes = 32
)

func init() { abi.Start(&vm{}) }

func main() {}

// vm is one VM: its share of the table, and scratch memory.
type vm struct {
	types.DefaultVMContext
	nonce       uint64
	table       store
	pages       pages
	copy        tableCopy
	body        abi.Scratch
	checkpoints []fingerprint.Checkpoint
	matches     []table.Match
	reply       []byte
	applied     abi.Metric // batches of changes this VM has applied
	vms         abi.Metric // VMs that tick
	ticking     bool
}

// store is a table somewhere.
type store interface {
	// find appends the longest match of every worker, in any order.
	find(now int64, cps []fingerprint.Checkpoint, out []table.Match) []table.Match
	// change takes a batch of entries and returns how many it applied: 1, or 0
	// if that happens at the tick.
	change(sequence uint64, entries []byte) (batches int)
	// tick applies what has come by way of other VMs.
	tick() (batches int)
}

type plugin struct {
	types.DefaultPluginContext
	vm *vm
}

type stream struct {
	types.DefaultHttpContext
	vm   *vm
	path string
}

func (v *vm) NewPluginContext(uint32) types.PluginContext { return &plugin{vm: v} }

func (p *plugin) OnPluginStart(int) types.OnPluginStartStatus {
	v := p.vm
	v.nonce = rand.Uint64()
	v.applied, _ = abi.DefineMetric(abi.Counter, "benchtable.applied")
	v.vms, _ = abi.DefineMetric(abi.Counter, "benchtable.vms")
	raw, status := abi.Buffer(abi.PluginConfiguration, 0, 256, &v.body)
	config := gjson.ParseBytes(raw)
	if status != abi.OK || !table.ValidBits(uint8(config.Get("bits").Uint())) {
		abi.Log(abi.LogError, "benchtable: the configuration names no size class")
		return types.OnPluginStartStatusFailed
	}
	v.pages.init(uint8(config.Get("bits").Uint()))
	v.table = &v.pages
	if config.Get("copy").Uint() != 0 {
		v.table = &v.copy
	}
	abi.SetTickPeriod(tick)
	return types.OnPluginStartStatusOK
}

// OnTick takes over what another VM was given.
func (p *plugin) OnTick() {
	if !p.vm.ticking {
		p.vm.ticking = true
		p.vm.vms.Add(1)
	}
	p.vm.applied.Add(int64(p.vm.table.tick()))
}

func (p *plugin) NewHttpContext(uint32) types.HttpContext { return &stream{vm: p.vm} }

func (s *stream) OnHttpRequestHeaders(int, bool) types.Action {
	s.path, _ = abi.HeaderString(abi.RequestHeaders, ":path")
	return types.ActionPause
}

func (s *stream) OnHttpRequestBody(size int, end bool) types.Action {
	if !end {
		return types.ActionPause
	}
	v := s.vm
	body, status := abi.Buffer(abi.RequestBody, 0, size, &v.body)
	if status != abi.OK {
		abi.SendLocalResponse(400, "no body", nil, nil, abi.NoGRPCStatus)
		return types.ActionPause
	}
	var reply []byte
	switch s.path {
	case "/changes":
		v.applied.Add(int64(v.table.change(binary.LittleEndian.Uint64(body), body[8:])))
	case "/lookup":
		reply = v.lookup(body)
	default:
		reply = v.answer(0)
	}
	abi.SendLocalResponse(200, "benchtable", nil, reply, abi.NoGRPCStatus)
	return types.ActionPause
}

// lookup finds the longest match of every worker and times it.
func (v *vm) lookup(body []byte) []byte {
	cps := v.checkpoints[:0]
	for ; len(body) >= checkpointBytes; body = body[checkpointBytes:] {
		end := binary.LittleEndian.Uint32(body[8:])
		cps = append(cps, fingerprint.Checkpoint{Fingerprint: binary.LittleEndian.Uint64(body), End: end &^ turnEnd, TurnEnd: end&turnEnd != 0})
	}
	v.checkpoints = cps
	began := abi.Now()
	v.matches = v.table.find(began, cps, v.matches[:0])
	return v.answer(abi.Now() - began)
}

// answer is
//
//	offset size
//	0      8    nanoseconds of the lookup
//	8      8    this VM's number
//	16     8    hash of the matches
//	24     4    matches
//	28     4    units of the longest
func (v *vm) answer(nanos int64) []byte {
	b := binary.LittleEndian.AppendUint64(v.reply[:0], uint64(nanos))
	b = binary.LittleEndian.AppendUint64(b, v.nonce)
	if nanos == 0 {
		v.matches = v.matches[:0]
	}
	var hash uint64
	longest := uint32(0)
	for _, m := range v.matches {
		hash += (uint64(m.Ref)<<32 | uint64(m.Units)) * 0x9e3779b97f4a7c15 // in no order
		longest = max(longest, m.Units)
	}
	b = binary.LittleEndian.AppendUint64(b, hash)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(v.matches)))
	v.reply = binary.LittleEndian.AppendUint32(b, longest)
	return v.reply
}

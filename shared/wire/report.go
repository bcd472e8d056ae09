package wire

import (
	"encoding/binary"

	"github.com/warmpath/warmpath/shared/fingerprint"
)

const (
	// MaxChunkBytes bounds a report chunk: 16 chunks of 128 VMs stay below 64 MB of shared data
	// at the very worst, and one holds ten dispatches of the largest kind.
	MaxChunkBytes = 32 << 10
	// MaxReportBytes is the size of the largest report record.
	MaxReportBytes = dispatchFixed + fingerprint.MaxCheckpoints*reportCheckpoint

	reportHeader     = 16
	dispatchFixed    = reportHeader + 12
	reportCheckpoint = 12
	flagCopy         = 1
	doneBytes        = reportHeader + 28
)

// ReportKind is the kind of a report record.
type ReportKind uint8

const (
	// Dispatch: a request was released to a worker, which will then hold its prefix.
	Dispatch ReportKind = 1
	// Done: the request is over.
	Done ReportKind = 2
)

// Outcome is how a request ended.
type Outcome uint8

// The outcomes.
const (
	Complete        Outcome = 1
	ClientAbort     Outcome = 2
	UpstreamFailure Outcome = 3
	Refused         Outcome = 4
	Local           Outcome = 5 // answered by the gateway itself
)

const (
	// UnknownTokens in CachedTokens, PromptTokens, OutputTokens: the engine did not say.
	UnknownTokens = -1
	// NoTTFT in TTFTMillis: no token came.
	NoTTFT = Never
)

// ReportID names a request within its gateway: slot and counter of its VM.
func ReportID(slot uint16, counter uint64) uint64 { return uint64(slot)<<48 | counter&(1<<48-1) }

// Report is one report record. Which fields count depends on Kind.
//
//	offset size
//	0      2    length of the record, these two bytes included
//	2      1    kind: 1 dispatch, 2 done
//	3      1    pool
//	4      2    chosen ref, 0 none
//	6      2    served ref, 0 unknown
//	8      8    id: slot << 48 | counter
//
// dispatch:
//
//	16     4    prompt, units
//	20     4    match at the chosen worker, units
//	24     2    n, the number of checkpoints, at most 256
//	26     2    flags: 1 no client's request, but a copy of a hot prefix that the gateway has made
//	28     12n  checkpoints: fingerprint u64, end u32 in units, ascending
//
// done:
//
//	16     2    HTTP status, 0 none
//	18     1    outcome: 1 complete, 2 client abort, 3 upstream failure, 4 refused, 5 local
//	19     1    attempts
//	20     4    tokens predicted to be cached
//	24     4    cached tokens the engine counted, int32, -1 unknown
//	28     4    prompt tokens, int32, -1 unknown
//	32     4    output tokens, int32, -1 unknown
//	36     4    time to first token, ms, 0xFFFFFFFF none
//	40     4    total time, ms
type Report struct {
	Kind           ReportKind
	Pool           uint8
	Chosen, Served uint16
	ID             uint64

	// Dispatch.
	PromptUnits, MatchedUnits uint32
	// Copy tells that no client asked: the gateway has made a copy of a hot prefix (a COPIES record), and
	// the worker has computed all of it. Nobody waited, so it is no demand for the prefix.
	Copy        bool
	checkpoints []byte

	// Done.
	Status          uint16
	Outcome         Outcome
	Attempts        uint8
	PredictedTokens uint32
	CachedTokens    int32
	PromptTokens    int32
	OutputTokens    int32
	TTFTMillis      uint32
	TotalMillis     uint32
}

// Checkpoints returns the number of checkpoints of a decoded dispatch.
func (r *Report) Checkpoints() int { return len(r.checkpoints) / reportCheckpoint }

// Checkpoint returns checkpoint i of a decoded dispatch. TurnEnd does not travel.
func (r *Report) Checkpoint(i int) fingerprint.Checkpoint {
	b := r.checkpoints[i*reportCheckpoint:]
	return fingerprint.Checkpoint{Fingerprint: binary.LittleEndian.Uint64(b), End: binary.LittleEndian.Uint32(b[8:])}
}

func appendReportHeader(b []byte, r *Report, kind ReportKind, length int) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(length))
	b = append(b, byte(kind), r.Pool)
	b = binary.LittleEndian.AppendUint16(b, r.Chosen)
	b = binary.LittleEndian.AppendUint16(b, r.Served)
	return binary.LittleEndian.AppendUint64(b, r.ID)
}

// AppendDispatch appends a dispatch record with the checkpoints as Finish returned them; more
// than fingerprint.MaxCheckpoints lose the shallowest.
func AppendDispatch(b []byte, r *Report, cps []fingerprint.Checkpoint) []byte {
	cps = cps[max(0, len(cps)-fingerprint.MaxCheckpoints):]
	b = appendReportHeader(b, r, Dispatch, dispatchFixed+len(cps)*reportCheckpoint)
	b = binary.LittleEndian.AppendUint32(b, r.PromptUnits)
	b = binary.LittleEndian.AppendUint32(b, r.MatchedUnits)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(cps)))
	flags := byte(0)
	if r.Copy {
		flags = flagCopy
	}
	b = append(b, flags, 0)
	for i := range cps {
		b = binary.LittleEndian.AppendUint64(b, cps[i].Fingerprint)
		b = binary.LittleEndian.AppendUint32(b, cps[i].End)
	}
	return b
}

// AppendDone appends a done record.
func AppendDone(b []byte, r *Report) []byte {
	b = appendReportHeader(b, r, Done, doneBytes)
	b = binary.LittleEndian.AppendUint16(b, r.Status)
	b = append(b, byte(r.Outcome), r.Attempts)
	b = binary.LittleEndian.AppendUint32(b, r.PredictedTokens)
	b = binary.LittleEndian.AppendUint32(b, uint32(r.CachedTokens))
	b = binary.LittleEndian.AppendUint32(b, uint32(r.PromptTokens))
	b = binary.LittleEndian.AppendUint32(b, uint32(r.OutputTokens))
	b = binary.LittleEndian.AppendUint32(b, r.TTFTMillis)
	return binary.LittleEndian.AppendUint32(b, r.TotalMillis)
}

// ForEachReport calls f for the report records in b, without the chunk header. r is valid
// during the call.
func ForEachReport(b []byte, f func(r *Report) error) error {
	var r Report
	for offset := 0; offset < len(b); {
		rest := b[offset:]
		if len(rest) < reportHeader {
			return fault(len(b), "report: header cut short")
		}
		length := int(binary.LittleEndian.Uint16(rest))
		if length < reportHeader {
			return fault(offset, "report: length below the header's")
		}
		if length > len(rest) {
			return fault(offset, "report: record longer than what is left")
		}
		if err := decodeReport(&r, rest[:length:length]); err != nil {
			return at(err, offset)
		}
		if err := f(&r); err != nil {
			return err
		}
		offset += length
	}
	return nil
}

func decodeReport(r *Report, b []byte) error {
	*r = Report{
		Kind: ReportKind(b[2]), Pool: b[3],
		Chosen: binary.LittleEndian.Uint16(b[4:]), Served: binary.LittleEndian.Uint16(b[6:]),
		ID: binary.LittleEndian.Uint64(b[8:]),
	}
	switch r.Kind {
	case Dispatch:
		if len(b) < dispatchFixed {
			return fault(len(b), "report: dispatch cut short")
		}
		n := int(binary.LittleEndian.Uint16(b[24:]))
		if n > fingerprint.MaxCheckpoints {
			return fault(24, "report: more than 256 checkpoints")
		}
		if len(b) != dispatchFixed+n*reportCheckpoint {
			return fault(24, "report: number of checkpoints does not match the length")
		}
		r.PromptUnits = binary.LittleEndian.Uint32(b[16:])
		r.MatchedUnits = binary.LittleEndian.Uint32(b[20:])
		r.Copy = b[26]&flagCopy != 0
		r.checkpoints = b[dispatchFixed:]
		before := uint32(0)
		for i := range n {
			end := r.Checkpoint(i).End
			if end <= before || end > r.PromptUnits {
				return fault(dispatchFixed+i*reportCheckpoint+8, "report: checkpoints do not ascend within the prompt")
			}
			before = end
		}
	case Done:
		if len(b) != doneBytes {
			return fault(0, "report: done is not 44 bytes long")
		}
		r.Status = binary.LittleEndian.Uint16(b[16:])
		r.Outcome = Outcome(b[18])
		r.Attempts = b[19]
		r.PredictedTokens = binary.LittleEndian.Uint32(b[20:])
		r.CachedTokens = int32(binary.LittleEndian.Uint32(b[24:]))
		r.PromptTokens = int32(binary.LittleEndian.Uint32(b[28:]))
		r.OutputTokens = int32(binary.LittleEndian.Uint32(b[32:]))
		r.TTFTMillis = binary.LittleEndian.Uint32(b[36:])
		r.TotalMillis = binary.LittleEndian.Uint32(b[40:])
		if r.Outcome < Complete || r.Outcome > Local {
			return fault(18, "report: unknown outcome")
		}
		if r.CachedTokens < -1 || r.PromptTokens < -1 || r.OutputTokens < -1 {
			return fault(24, "report: token count below -1")
		}
	default:
		return fault(2, "report: unknown kind")
	}
	return nil
}

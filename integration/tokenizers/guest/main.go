// Command guest is what the benchmark runs natively, in V8 and in wazero: the
// same program, asked by lines on standard input, answering each with one line
// of JSON. Its clock is CPU time: natively by the operating system, in a VM by
// what the host gives as WASI's monotonic clock.
//
//	load FILE             a compiled vocabulary, shard by shard as the module does
//	encode FILE PASSES    all texts of a framed file PASSES times, without memo
//	piece KIND BYTES      one piece that never ends
//	memo HISTORY FRESH N  a conversation of HISTORY bytes, then N times another
//	                      last message of FRESH bytes
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/warmpath/warmpath/integration/guests/cputime"
	"github.com/warmpath/warmpath/shared/fingerprint"
	"github.com/warmpath/warmpath/tokenizer/bpe"
	"github.com/warmpath/warmpath/tokenizer/prefix"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// shardBytes is what the module is given in one callback.
const shardBytes = 256 << 10

// answer is what one line of questions is answered with.
type answer struct {
	Error        string  `json:"error,omitempty"`
	Nanos        []int64 `json:"nanos,omitempty"` // CPU time of each pass
	IDs          int     `json:"ids,omitempty"`   // of one pass
	Bytes        int     `json:"bytes,omitempty"` // of one pass
	Slices       int     `json:"slices,omitempty"`
	Longest      int64   `json:"longestNanos,omitempty"` // CPU time of the longest slice
	HeapBytes    uint64  `json:"heapBytes,omitempty"`    // what the loaded vocabulary holds
	EncoderBytes uint64  `json:"encoderBytes,omitempty"` // what an encoder's tables, caches and memo hold beside it
	Exhausted    bool    `json:"exhausted,omitempty"`
}

type guest struct {
	voc   *vocab.Vocab
	enc   *bpe.Encoder // as the module has it
	plain *bpe.Encoder // without a memo: what fresh text costs
	ids   []uint32
	known prefix.Memo
	chain fingerprint.Chain
}

func main() {
	debug.SetGCPercent(400) // as the module
	g := &guest{}
	in := bufio.NewScanner(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		a, err := g.do(strings.Fields(in.Text()))
		if err != nil {
			a.Error = err.Error()
		}
		if out.Encode(a) != nil {
			return
		}
	}
}

func (g *guest) do(words []string) (answer, error) {
	if len(words) == 0 {
		return answer{}, errors.New("empty line")
	}
	numbers := make([]int, len(words))
	for i, w := range words {
		numbers[i], _ = strconv.Atoi(w)
	}
	switch {
	case words[0] == "load" && len(words) == 2:
		return g.load(words[1])
	case g.enc == nil:
		return answer{}, errors.New("load a vocabulary first")
	case words[0] == "encode" && len(words) == 3:
		return g.encode(words[1], numbers[2])
	case words[0] == "piece" && len(words) == 3:
		return g.piece(words[1], numbers[2])
	case words[0] == "memo" && len(words) == 5:
		return g.memo(words[1], numbers[2], numbers[3], numbers[4])
	}
	return answer{}, fmt.Errorf("no such question: %s", strings.Join(words, " "))
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// load reads the file whole and hands it over in shards, timing each.
func (g *guest) load(path string) (answer, error) {
	*g = guest{}
	file, err := os.ReadFile(path)
	if err != nil {
		return answer{}, err
	}
	before := heap()
	loader, err := vocab.NewLoader(len(file))
	if err != nil {
		return answer{}, err
	}
	a := answer{Bytes: len(file)}
	timed := func(f func() error) error {
		start := cputime.Nanos()
		err := f()
		spent := cputime.Nanos() - start
		a.Slices++
		a.Longest = max(a.Longest, spent)
		return err
	}
	for at := 0; at < len(file); at += shardBytes {
		if err := timed(func() error { return loader.Write(file[at:min(len(file), at+shardBytes)]) }); err != nil {
			return answer{}, err
		}
	}
	if err := timed(func() error { g.voc, err = loader.Finish(); return err }); err != nil {
		return answer{}, err
	}
	a.HeapBytes = heap() - before
	before = heap()
	if err := timed(func() error { g.enc = bpe.New(g.voc, bpe.Config{}); return nil }); err != nil {
		return answer{}, err
	}
	a.EncoderBytes = heap() - before
	runtime.KeepAlive(file)
	g.plain = bpe.New(g.voc, bpe.Config{MemoIDs: -1})
	return a, nil
}

// encode runs over all texts of a file, passes times.
func (g *guest) encode(path string, passes int) (answer, error) {
	framed, err := os.ReadFile(path)
	if err != nil {
		return answer{}, err
	}
	var texts [][]byte
	a := answer{}
	for len(framed) >= 4 {
		n := int(binary.LittleEndian.Uint32(framed))
		texts, framed = append(texts, framed[4:4+n]), framed[4+n:]
		a.Bytes += n
	}
	for range passes {
		a.IDs = 0
		start := cputime.Nanos()
		for _, text := range texts {
			g.ids, _ = g.plain.Encode(g.ids[:0], text, bpe.Options{})
			a.IDs += len(g.ids)
		}
		a.Nanos = append(a.Nanos, cputime.Nanos()-start)
	}
	return a, nil
}

// piece encodes one piece that no pre-tokeniser cuts.
func (g *guest) piece(kind string, n int) (answer, error) {
	text := make([]byte, n)
	state := uint32(2463534242)
	for i := range text {
		state ^= state << 13
		state ^= state >> 17
		state ^= state << 5
		switch kind {
		case "letters":
			text[i] = 'a' + byte(state%26)
		case "same":
			text[i] = 'a'
		case "two":
			text[i] = 'a' + byte(state%2)
		case "spaces":
			text[i] = ' '
		case "punctuation":
			text[i] = "=-+*/<>!?.,:;"[state%13]
		default:
			return answer{}, fmt.Errorf("no kind of piece %q", kind)
		}
	}
	a := answer{Bytes: n}
	for range 3 {
		var r bpe.Result
		start := cputime.Nanos()
		g.ids, r = g.plain.Encode(g.ids[:0], text, bpe.Options{})
		a.Nanos = append(a.Nanos, cputime.Nanos()-start)
		a.IDs, a.Exhausted = len(g.ids), r.Exhausted
	}
	return a, nil
}

// memo is a conversation whose last message is new every time, tokenised and
// fingerprinted as the module does. path holds framed texts; their bytes make the
// messages, of 10 KB each.
func (g *guest) memo(path string, history, fresh, times int) (answer, error) {
	framed, err := os.ReadFile(path)
	if err != nil {
		return answer{}, err
	}
	const message = 10 << 10
	turn := g.turnEnd()
	var body []byte
	var ends []int
	for at := 0; len(body) < history; at += message {
		if at+message > len(framed) {
			return answer{}, errors.New("text file is too small")
		}
		body = append(append(body, bytes.ToValidUTF8(framed[at:at+message], nil)...), turn...)
		ends = append(ends, len(body))
	}
	rest := framed[len(framed)/2:]
	if len(rest) < fresh+times {
		return answer{}, errors.New("text file is too small")
	}
	a := answer{Bytes: history + fresh}
	g.known.Chain(&g.chain, g.enc, prefix.Prompt{Text: body, Ends: ends})
	known := len(body)
	for i := range times {
		at := i * (len(rest) - fresh) / times
		body = append(body[:known], bytes.ToValidUTF8(rest[at:at+fresh], nil)...)
		start := cputime.Nanos()
		r := g.known.Chain(&g.chain, g.enc, prefix.Prompt{Text: body, Ends: ends})
		g.chain.Finish()
		a.Nanos = append(a.Nanos, cputime.Nanos()-start)
		a.IDs = r.Tokens
	}
	return a, nil
}

// turnEnd is the vocabulary's longest added token: any of them cuts.
func (g *guest) turnEnd() []byte {
	var longest []byte
	for _, added := range g.voc.RawAdded {
		if c := g.voc.Content(added); len(c) > len(longest) {
			longest = c
		}
	}
	return longest
}

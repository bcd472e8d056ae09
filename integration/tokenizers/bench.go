package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/warmpath/warmpath/integration/guests"
)

// figure is one cell: CPU time of one thread for one corpus.
type figure struct {
	Vocabulary string  `json:"vocabulary"`
	Host       string  `json:"host"`   // native, v8, wazero, tokenizers, tiktoken
	Corpus     string  `json:"corpus"` // mixed, fresh, hard
	MBPerS     float64 `json:"mbPerSecond"`
	Best       float64 `json:"bestMBPerSecond"`
	IDs        int     `json:"ids"`
	Bytes      int     `json:"bytes"`
}

// loading is what a vocabulary costs where it is loaded.
type loading struct {
	Vocabulary    string  `json:"vocabulary"`
	Host          string  `json:"host"`
	FileBytes     int     `json:"fileBytes"`
	ResidentBytes uint64  `json:"residentBytes"` // of the loaded vocabulary
	EncoderBytes  uint64  `json:"encoderBytes"`  // tables, caches and message memo beside it
	Slices        int     `json:"slices"`
	LongestMillis float64 `json:"longestSliceMillis"`
}

// followUp is the cost of a 400 KB conversation with one new 10 KB message.
type followUp struct {
	Vocabulary string  `json:"vocabulary"`
	Host       string  `json:"host"`
	Millis     float64 `json:"millis"`
	Best       float64 `json:"bestMillis"`
	IDs        int     `json:"ids"`
}

// piece is the cost of one text that no pre-tokeniser cuts.
type piece struct {
	Vocabulary string     `json:"vocabulary"`
	Host       string     `json:"host"`
	Kind       string     `json:"kind"`
	Millis     [3]float64 `json:"millis"` // at pieceBytes, 10 and 100 times that
}

const pieceBytes = 1 << 10

type benchReport struct {
	Machine   string     `json:"machine"`
	Rounds    int        `json:"rounds"`
	Figures   []figure   `json:"figures"`
	Loading   []loading  `json:"loading"`
	FollowUps []followUp `json:"followUps"`
	Pieces    []piece    `json:"pieces"`
}

// corpora are written into folder as framed texts; the names are the files'.
func (c cache) corpora(ctx context.Context, folder string) ([]string, error) {
	docs, err := c.realTexts(ctx)
	if err != nil {
		return nil, err
	}
	pool := func(part ...string) []byte {
		var all []byte
		for _, d := range docs {
			for _, p := range part {
				if strings.Contains(d.Name, p) {
					all = append(all, d.Text...)
				}
			}
		}
		return all
	}
	rng := rand.New(rand.NewPCG(1, 1))
	// A document of about size bytes, by lines from pools in turn; shares say how
	// much of each.
	compose := func(size int, pools [][]byte, shares []float64) []byte {
		var out []byte
		for i, p := range pools {
			want := int(shares[i] * float64(size))
			at := rng.IntN(max(1, len(p)-want))
			cut := p[at:min(len(p), at+want)]
			if nl := bytes.IndexByte(cut, '\n'); nl > 0 && nl < 1000 {
				cut = cut[nl+1:]
			}
			for len(cut) > 0 && !utf8.Valid(cut) {
				cut = cut[:len(cut)-1]
			}
			out = append(out, cut...)
		}
		return out
	}
	english, code := pool("Opticks"), pool("transformers_", "go_net")
	cjk, europe := pool("_ja_", "zh_", "zh-cn", "zh-tw", "_ko_", "~ja~", "~zh_", "~ko~"), pool("~de~", "~fr~", "~ru~", "~pl~", "~es~", "de_", "fr_")
	rare := pool("localenames")
	mixed := func() []byte {
		return compose(100<<10, [][]byte{english, code, europe, cjk}, []float64{.45, .30, .15, .10})
	}
	numbers := func(size int) []byte {
		var b bytes.Buffer
		for b.Len() < size {
			fmt.Fprintf(&b, "%d,%.4f,%x,2026-%02d-%02dT%02d:%02d:%02dZ,%d.%d.%d.%d\n", rng.IntN(1e9), rng.NormFloat64()*1000, rng.Uint64(),
				1+rng.IntN(12), 1+rng.IntN(28), rng.IntN(24), rng.IntN(60), rng.IntN(60), rng.IntN(256), rng.IntN(256), rng.IntN(256), rng.IntN(256))
		}
		return b.Bytes()
	}
	texts := map[string][][]byte{"mixed": {mixed()}}
	for range 20 {
		texts["fresh"] = append(texts["fresh"], mixed())
		texts["hard"] = append(texts["hard"], compose(100<<10, [][]byte{code, cjk, numbers(25 << 10), rare}, []float64{.25, .25, .25, .25}))
	}
	names := []string{"mixed", "fresh", "hard"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(folder, name), frame(texts[name]), 0o644); err != nil {
			return nil, err
		}
	}
	return names, nil
}

func runBench(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	vocabs := flags.String("vocab", "", "vocabularies, separated by commas (default: all)")
	hostNames := flags.String("hosts", "native,v8,wazero", "where ours runs")
	rounds := flags.Int("rounds", 9, "times that everything is measured, all in turn; the median counts")
	jsonFile := flags.String("json", "", "write the figures to this `file` too (- for standard output)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	some, err := pick(*vocabs)
	if err != nil {
		return err
	}
	if *rounds < 1 {
		return fmt.Errorf("-rounds %d: want one or more", *rounds)
	}
	c, err := openCache()
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "warmpath-tokenizers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	corpora, err := c.corpora(ctx, folder)
	if err != nil {
		return err
	}
	hosts, err := guests.StartAll(ctx, "integration/tokenizers/guest", folder, strings.Split(*hostNames, ","))
	if err != nil {
		return err
	}
	defer guests.StopAll(hosts)
	if *jsonFile == "-" {
		stdout = stderr
	}
	result := benchReport{Machine: machine(), Rounds: *rounds}
	for _, v := range some {
		fmt.Fprintf(stderr, "measure %s in %s, %d rounds\n", v.Name, *hostNames, *rounds)
		if err := c.benchOne(ctx, v, folder, corpora, hosts, &result); err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
	}
	result.print(stdout)
	return writeJSON(*jsonFile, result)
}

// benchOne measures one vocabulary everywhere, its reference beside.
func (c cache) benchOne(ctx context.Context, v vocabulary, folder string, corpora []string, hosts []*guests.Host, result *benchReport) error {
	file, err := c.file(ctx, v)
	if err != nil {
		return err
	}
	wpv, err := compiled(v, file)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "vocab.wpv"), wpv, 0o644); err != nil {
		return err
	}
	python, err := c.python(ctx)
	if err != nil {
		return err
	}
	script, err := c.script()
	if err != nil {
		return err
	}
	kind, theirName := "hf", "tokenizers"
	if v.Ranks != "" {
		kind, theirName = "tiktoken", "tiktoken"
	}
	theirs, err := guests.Start(ctx, theirName, python, script, "bench", kind, file)
	if err != nil {
		return err
	}
	defer theirs.Stop()
	if line, err := theirs.Read(); err != nil || line != "ready" {
		return fmt.Errorf("%s did not start: %q %w", theirName, line, err)
	}
	for _, h := range hosts {
		a, err := ask(h, "load vocab.wpv")
		if err != nil {
			return err
		}
		result.Loading = append(result.Loading, loading{v.Name, h.Name, a.Bytes, a.HeapBytes, a.EncoderBytes, a.Slices, float64(a.Longest) / 1e6})
	}
	for _, corpus := range corpora {
		figures, err := race(corpus, filepath.Join(folder, corpus), hosts, theirs, result.Rounds)
		if err != nil {
			return err
		}
		for _, f := range figures {
			f.Vocabulary = v.Name
			result.Figures = append(result.Figures, f)
		}
	}
	for _, h := range hosts {
		if v.Ranks == "" { // messages end at added tokens, of which a rank file has none
			a, err := ask(h, "memo fresh %d %d 25", 400<<10, 10<<10)
			if err != nil {
				return err
			}
			result.FollowUps = append(result.FollowUps, followUp{v.Name, h.Name, median(a.Nanos) / 1e6, float64(slices.Min(a.Nanos)) / 1e6, a.IDs})
		}
		for _, kind := range []string{"letters", "same", "two", "spaces", "punctuation"} {
			p := piece{Vocabulary: v.Name, Host: h.Name, Kind: kind}
			for i, scale := range []int{1, 10, 100} {
				a, err := ask(h, "piece %s %d", kind, pieceBytes*scale)
				if err != nil {
					return err
				}
				p.Millis[i] = float64(slices.Min(a.Nanos)) / 1e6
			}
			result.Pieces = append(result.Pieces, p)
		}
	}
	return nil
}

// race measures one corpus on every host in turn, rounds times, after a first
// round that counts for nothing. All must find the same number of ids.
func race(corpus, path string, hosts []*guests.Host, theirs *guests.Host, rounds int) ([]figure, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	figures := make([]figure, len(hosts)+1)
	nanos := make([][]int64, len(hosts)+1)
	passes := max(1, int(2_000_000/info.Size())) // a single document is too short for a clock
	for round := range rounds + 1 {
		for i := range figures {
			var a answer
			if i < len(hosts) {
				if a, err = ask(hosts[i], "encode %s %d", corpus, passes); err != nil {
					return nil, err
				}
				figures[i].Host, figures[i].Bytes = hosts[i].Name, a.Bytes
			} else {
				if a, err = askReference(theirs, path); err != nil {
					return nil, err
				}
				figures[i].Host, figures[i].Bytes = theirs.Name, figures[0].Bytes
			}
			figures[i].Corpus, figures[i].IDs = corpus, a.IDs
			if a.IDs != figures[0].IDs {
				return nil, fmt.Errorf("%s finds %d ids in %s, %s %d", figures[i].Host, a.IDs, corpus, figures[0].Host, figures[0].IDs)
			}
			if round > 0 {
				sum := int64(0)
				for _, n := range a.Nanos {
					sum += n
				}
				nanos[i] = append(nanos[i], sum/int64(len(a.Nanos)))
			}
		}
	}
	for i := range figures {
		figures[i].MBPerS = float64(figures[i].Bytes) * 1e3 / median(nanos[i])
		figures[i].Best = float64(figures[i].Bytes) * 1e3 / float64(slices.Min(nanos[i]))
	}
	return figures, nil
}

func median(ns []int64) float64 {
	sorted := slices.Sorted(slices.Values(ns))
	return float64(sorted[(len(sorted)-1)/2]+sorted[len(sorted)/2]) / 2
}

func (r *benchReport) print(w io.Writer) {
	fmt.Fprintf(w, "%s; MB/s of CPU time, one thread, median (best) of %d rounds in turn\n\n", r.Machine, r.Rounds)
	fmt.Fprintf(w, "%-14s %-11s %16s %16s %16s\n", "vocabulary", "where", "mixed", "fresh", "hard")
	for i := 0; i < len(r.Figures); i++ {
		f := r.Figures[i]
		if f.Corpus != "mixed" {
			continue
		}
		row := map[string]string{}
		for _, other := range r.Figures {
			if other.Vocabulary == f.Vocabulary && other.Host == f.Host {
				row[other.Corpus] = fmt.Sprintf("%.1f (%.1f)", other.MBPerS, other.Best)
			}
		}
		fmt.Fprintf(w, "%-14s %-11s %16s %16s %16s\n", f.Vocabulary, f.Host, row["mixed"], row["fresh"], row["hard"])
	}
	fmt.Fprintf(w, "\n%-14s %-8s %10s %10s %7s %14s %24s\n", "vocabulary", "where", "resident", "+ encoder", "slices", "longest slice", "400 KB, 10 KB of it new")
	for _, l := range r.Loading {
		turn := "-"
		for _, f := range r.FollowUps {
			if f.Vocabulary == l.Vocabulary && f.Host == l.Host {
				turn = fmt.Sprintf("%.2f (%.2f) ms", f.Millis, f.Best)
			}
		}
		fmt.Fprintf(w, "%-14s %-8s %7.2f MB %7.2f MB %7d %11.2f ms %24s\n", l.Vocabulary, l.Host,
			float64(l.ResidentBytes)/1e6, float64(l.EncoderBytes)/1e6, l.Slices, l.LongestMillis, turn)
	}
	fmt.Fprintf(w, "\none piece, ms at %d, %d, %d bytes (ratio per step)\n", pieceBytes, 10*pieceBytes, 100*pieceBytes)
	for _, p := range r.Pieces {
		fmt.Fprintf(w, "%-14s %-8s %-12s %8.3f %8.3f %8.3f   (%.1f, %.1f)\n", p.Vocabulary, p.Host, p.Kind,
			p.Millis[0], p.Millis[1], p.Millis[2], p.Millis[1]/p.Millis[0], p.Millis[2]/p.Millis[1])
	}
}

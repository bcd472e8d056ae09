package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/shared/route"
)

// liveExplanation is what a gateway tells of a request that it has just served: read from
// x-warmpath-explain, see docs/formats.md.
type liveExplanation struct {
	Gateway       string       `json:"gateway"`
	Status        int          `json:"status"`       // of the response
	Fingerprints  string       `json:"fingerprints"` // exact, approximate, inexact; none
	PromptTokens  int          `json:"prompt_tokens"`
	Checkpoints   []livePoint  `json:"checkpoints"`
	Best          string       `json:"best"` // "" where the proxy's own balancer placed it
	MatchedTokens int          `json:"matched_tokens"`
	Why           string       `json:"why"`
	Group         string       `json:"group,omitempty"`
	Observe       bool         `json:"observe"`
	Workers       []liveWorker `json:"workers"`      // the chosen one first
	WorkersMore   int          `json:"workers_more"` // that the gateway didn't list
	Said          string       `json:"said"`         // the header

	Price *explainedPrice `json:"price,omitempty"` // rule cost: of a second of prefill
}

type livePoint struct {
	Tokens  int  `json:"tokens"`
	TurnEnd bool `json:"turn_end"`
}

type liveWorker struct {
	Address  string   `json:"address"`
	LeftOut  string   `json:"left_out,omitempty"`
	NotDrawn bool     `json:"not_drawn,omitempty"`
	Home     bool     `json:"home,omitempty"`
	Terms    liveTerm `json:"terms"`
	names    []string // of the terms, as they came
}

type liveTerm map[string]float64

// explainLive sends the request and reads what the gateway says of it. The answer itself is not read.
func explainLive(cmd *cobra.Command, raw []byte, gateway, path, session string) (*liveExplanation, error) {
	request, err := http.NewRequestWithContext(cmd.Context(), http.MethodPost, strings.TrimRight(gateway, "/")+path, bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("--gateway %q: %w", gateway, err)
	}
	request.Header.Set("Content-Type", "application/json")
	if session != "" {
		request.Header.Set("X-Session-Id", session)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the gateway: %w (is it running, and is --gateway its address?)", err)
	}
	defer response.Body.Close()
	said := response.Header.Get("X-Warmpath-Explain")
	if said == "" {
		return nil, fmt.Errorf("the gateway answers %d and explains nothing: set \"explain\": true in its module's configuration (warmpath gateway --explain)", response.StatusCode)
	}
	e, err := readExplanation(said)
	if err != nil {
		return nil, err
	}
	e.Gateway, e.Status = gateway, response.StatusCode
	return e, nil
}

// readExplanation reads the header.
func readExplanation(said string) (*liveExplanation, error) {
	e := &liveExplanation{Said: said, Checkpoints: []livePoint{}, Workers: []liveWorker{}}
	var bad error
	fault := func(text string, err error) {
		if err != nil && bad == nil {
			bad = fmt.Errorf("read %q in x-warmpath-explain: %w (are gateway and command of one version?)", text, err)
		}
	}
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		fault(text, err)
		return n
	}
	price := func() *explainedPrice {
		if e.Price == nil {
			e.Price = &explainedPrice{}
		}
		return e.Price
	}
	part := func(to *float64, text string) {
		n, err := strconv.ParseFloat(text, 64)
		fault(text, err)
		*to = n
	}
	for _, field := range strings.Fields(strings.ReplaceAll(said, " more)", "_more)")) { // as in at=64,(12 more),4096
		if worker, is := strings.CutPrefix(field, "@"); is {
			w, err := readWorker(worker)
			bad = errors.Join(bad, err)
			e.Workers = append(e.Workers, w)
			continue
		}
		switch name, value, _ := strings.Cut(field, "="); name {
		case "mode":
			if value == "observe" {
				e.Observe = true
			} else {
				e.Fingerprints = value
			}
		case "tokens":
			e.PromptTokens = number(value)
		case "at":
			for _, at := range strings.Split(value, ",") {
				if text, turn := strings.CutSuffix(at, "*"); !strings.HasPrefix(at, "(") {
					e.Checkpoints = append(e.Checkpoints, livePoint{number(text), turn})
				}
			}
		case "hit":
			matched, _, _ := strings.Cut(value, "/")
			e.MatchedTokens = number(matched)
		case "w":
			e.Best = strings.TrimPrefix(value, "-")
		case "why":
			e.Why = value
		case "group":
			e.Group = value
		case "workers_more":
			e.WorkersMore = number(value)
		case "price":
			part(&price().Base, value)
		case "each":
			part(&price().Each, value)
		case "kv_mean":
			part(&price().Memory, value)
		case "tight":
			part(&price().Tightness, value)
		}
	}
	return e, bad
}

func readWorker(text string) (w liveWorker, err error) {
	fields := strings.Split(text, ";")
	w = liveWorker{Address: fields[0], Terms: liveTerm{}}
	for _, field := range fields[1:] {
		switch name, value, _ := strings.Cut(field, "="); name {
		case "left":
			w.LeftOut = value
		case "not_drawn":
			w.NotDrawn = true
		case "home":
			w.Home = true
		default:
			n, fault := strconv.ParseFloat(strings.TrimSuffix(value, "ms"), 64)
			if fault != nil {
				err = fmt.Errorf("read %q of worker %s in x-warmpath-explain: %w (are gateway and command of one version?)", field, w.Address, fault)
				continue
			}
			if strings.HasSuffix(value, "ms") {
				name += "_ms"
			}
			w.Terms[name] = n
			w.names = append(w.names, name)
		}
	}
	return w, err
}

// print writes it for people.
func (e *liveExplanation) print(to io.Writer) error {
	out := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "%s answered %d; prompt of %d tokens, fingerprints %s, %d checkpoints listed\n\n", e.Gateway, e.Status, e.PromptTokens, e.Fingerprints, len(e.Checkpoints))
	var names []string
	for _, w := range e.Workers {
		for _, name := range w.names {
			if !slices.Contains(names, name) && !slices.Contains(specialTerms, name) {
				names = append(names, name)
			}
		}
	}
	if len(e.Workers) > 0 {
		fmt.Fprintf(out, "worker\t%s\t\n", strings.Join(names, "\t"))
	}
	for i := range e.Workers {
		w := &e.Workers[i]
		fmt.Fprint(out, w.Address)
		for _, name := range names {
			cell := ""
			if n, has := w.Terms[name]; has {
				cell = strconv.FormatFloat(n, 'f', -1, 64)
			}
			fmt.Fprint(out, "\t", cell)
		}
		fmt.Fprintf(out, "\t%s\n", strings.Join(w.remarks(), ", "))
	}
	if e.WorkersMore > 0 {
		fmt.Fprintf(out, "and %d more\n", e.WorkersMore)
	}
	fmt.Fprintf(out, "\nbest    %s, %d of %d prompt tokens expected in its cache\nwhy     %s\n", orDash(e.Best), e.MatchedTokens, e.PromptTokens, orDash(e.Why))
	if e.Price != nil && len(e.Workers) > 0 && e.Workers[0].Address == e.Best {
		if cost := e.Workers[0].Terms.cost(); cost != nil {
			for _, words := range cost.missReasons(e.Price) {
				fmt.Fprintf(out, "        %s\n", words)
			}
		}
	}
	if e.Group != "" {
		fmt.Fprintf(out, "        the session is in the pool's %s group\n", e.Group)
	}
	if e.Observe {
		fmt.Fprintln(out, "        the pool observes: the choice was counted and not carried out")
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the explanation: %w", err)
	}
	return nil
}

func (w *liveWorker) remarks() (all []string) {
	if w.LeftOut != "" {
		all = append(all, "left out: "+w.LeftOut)
	}
	if w.NotDrawn {
		all = append(all, "not drawn this time")
	}
	if w.Home {
		all = append(all, "home of its hot prefix")
	}
	if cost := w.Terms.cost(); cost != nil {
		all = append(all, cost.special()...)
	}
	return all
}

// specialTerms are told in words: few workers have them.
var specialTerms = []string{"miss_home", "miss_sibling", "miss_young", "miss_gone", "youth", "later", "allowed", "detour"}

// cost is what a worker costs, nil where its gateway doesn't say what a second of prefill costs there.
func (t liveTerm) cost() *explainedCost {
	if t["price"] == 0 {
		return nil
	}
	return explainCost(&route.Terms{
		Own: t["prefill"], Prefill: t["price"], HeldUp: t["held_up"], Miss: t["miss"], Cost: t["cost"],
		Wait: t["wait"], Decode: t["decode"], Evict: t["evict"], Spread: t["spread"],
		Home: t["miss_home"], Sibling: t["miss_sibling"], Young: t["miss_young"], Gone: t["miss_gone"],
		Youth: t["youth"], Later: t["later"], Allowed: t["allowed"], Detour: t["detour"],
	})
}

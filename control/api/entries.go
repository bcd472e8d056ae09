package api

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/warmpath/warmpath/control/publish"
)

// Entries is the answer of GET /v1/table/entries.
type Entries struct {
	Epoch uint64 `json:"epoch"`
	Pages int    `json:"pages"` // of the whole table
	// Next is the page to go on with; absent at the end.
	Next    *int    `json:"next,omitempty"`
	Entries []Entry `json:"entries"`
}

// Entry is one checkpoint that somebody holds.
type Entry struct {
	Fingerprint string `json:"fingerprint"` // 16 hexadecimal digits
	Pool        string `json:"pool"`
	Units       uint32 `json:"units"`
	// Tokens of the prefix that ends there; estimated in approximate mode.
	Tokens float64 `json:"tokens"`
	// Heat is the number of requests whose longest match it was, each fading by
	// half in five minutes.
	Heat     float64  `json:"heat"`
	PoolSize int      `json:"pool_size"`
	Holders  []Holder `json:"holders"`
}

// Holder is a worker that holds a checkpoint.
type Holder struct {
	Worker string `json:"worker"`
	Ref    uint16 `json:"ref"`
	Proof  string `json:"proof"` // predicted, confirmed, reported
}

const (
	// MaxEntryPages bounds one answer of /v1/table/entries: 5,440 entries.
	MaxEntryPages = 64
	// MaxTop bounds one answer of /v1/table/top.
	MaxTop = 1000

	defaultTop = 20
)

// bounded reads a query parameter that may be left out.
func bounded(r *http.Request, name string, missing, most int) (int, error) {
	if r.URL.Query().Get(name) == "" {
		return missing, nil
	}
	v, err := number(r, name, 31)
	if err == nil && (v < 1 || v > uint64(most)) {
		err = badRequest(fmt.Sprintf("%s is %d", name, v), fmt.Sprintf("send 1 to %d", most))
	}
	return int(v), err
}

func (h *handler) entries(w http.ResponseWriter, r *http.Request) {
	epoch, err := number(r, "epoch", 64)
	var page uint64
	if err == nil {
		page, err = number(r, "page", 31)
	}
	pages := 0
	if err == nil {
		pages, err = bounded(r, "pages", MaxEntryPages, MaxEntryPages)
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	out, err := h.c.Entries(epoch, int(page), pages)
	var moved *publish.Moved
	switch {
	case errors.As(err, &moved):
		h.fail(w, &Failure{http.StatusConflict, "moved", moved.Error(), "begin again at page 0 without an epoch"})
	case err != nil:
		h.fail(w, badRequest(err.Error(), "begin at page 0 and go on with next"))
	default:
		h.answer(w, http.StatusOK, out)
	}
}

func (h *handler) top(w http.ResponseWriter, r *http.Request) {
	limit, err := bounded(r, "limit", defaultTop, MaxTop)
	var out struct {
		Entries []Entry `json:"entries"`
	}
	if err == nil {
		out.Entries, err = h.c.Top(r.URL.Query().Get("pool"), limit)
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	h.answer(w, http.StatusOK, out)
}

package api

import (
	"net/http"
	"strconv"

	"github.com/warmpath/warmpath/shared/policy"
)

// vocabulary hands out one piece. Its name says what it contains, so that
// whoever has it need never ask again.
func (h *handler) vocabulary(w http.ResponseWriter, r *http.Request) {
	hash, ok := policy.ParseHash(r.PathValue("hash"))
	if !ok {
		h.fail(w, badRequest("not the hash of a vocabulary: "+strconv.Quote(r.PathValue("hash")), "write the 32 hex digits that GET /v1/status shows"))
		return
	}
	n, err := number(r, "shard", 16)
	if err != nil {
		h.fail(w, err)
		return
	}
	piece := h.c.Vocabulary(hash, int(n))
	if piece == nil {
		h.fail(w, &Failure{http.StatusNotFound, "no_such_vocabulary", "the policy names no vocabulary with that piece", "see GET /v1/status for the vocabularies; a change of the policy ends the one before"})
		return
	}
	tag := `"` + hash.String() + "-" + strconv.FormatUint(n, 10) + `"`
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	writeFrame(w, piece)
}

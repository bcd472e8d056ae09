package api

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/warmpath/warmpath/control/publish"
)

// number reads a query parameter; missing is 0.
func number(r *http.Request, name string, bits int) (uint64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	v, err := strconv.ParseUint(text, 10, bits)
	if err != nil {
		return 0, badRequest(name+" is not a number: "+strconv.Quote(text), "send "+name+" as decimal digits")
	}
	return v, nil
}

// serving refuses while the roster isn't known yet: a table without workers
// would make gateways drop what they have.
func (h *handler) serving(w http.ResponseWriter) bool {
	select {
	case <-h.c.Serving():
		return true
	default:
		w.Header().Set("Retry-After", "1")
		h.fail(w, &Failure{http.StatusServiceUnavailable, "starting", "the workers are being probed for the first time", "ask again in a second"})
		return false
	}
}

// table is the long-poll: what changed since (epoch, version), at the latest
// after wait_ms.
func (h *handler) table(w http.ResponseWriter, r *http.Request) {
	epoch, err := number(r, "epoch", 64)
	if err != nil {
		h.fail(w, err)
		return
	}
	version, err := number(r, "version", 64)
	if err != nil {
		h.fail(w, err)
		return
	}
	waitMillis, err := number(r, "wait_ms", 32)
	if err != nil {
		h.fail(w, err)
		return
	}
	speaks, err := number(r, "wire", 8)
	if err != nil {
		h.fail(w, err)
		return
	}
	if !h.serving(w) {
		return
	}
	timer := time.NewTimer(min(time.Duration(waitMillis)*time.Millisecond, MaxWait))
	defer timer.Stop()
	for {
		// The channel first: a change between the two calls must not be missed.
		changed := h.c.Table().Changed()
		if frame, ok := h.c.Table().Update(epoch, version, uint8(speaks), time.Now()); ok {
			writeFrame(w, frame)
			return
		}
		select {
		case <-changed:
			continue
		case <-timer.C:
		case <-h.c.Stopping():
		case <-r.Context().Done():
			return
		}
		w.WriteHeader(http.StatusNoContent)
		return
	}
}

// pages answers with a range, or to a POST with those of its pages whose digests
// differ from the sent ones.
func (h *handler) pages(w http.ResponseWriter, r *http.Request) {
	epoch, err := number(r, "epoch", 64)
	if err != nil {
		h.fail(w, err)
		return
	}
	bits, err := number(r, "bits", 8)
	if err != nil {
		h.fail(w, err)
		return
	}
	index, err := number(r, "range", 16)
	if err != nil {
		h.fail(w, err)
		return
	}
	if !h.serving(w) {
		return
	}
	var frame []byte
	if r.Method == http.MethodPost {
		var digests []byte
		if digests, err = h.body(w, r, maxDigestsBytes); err != nil {
			h.fail(w, err)
			return
		}
		frame, err = h.c.Table().Compare(epoch, uint8(bits), int(index), digests)
	} else {
		frame, err = h.c.Table().Pages(epoch, uint8(bits), int(index))
	}
	var moved *publish.Moved
	switch {
	case errors.As(err, &moved):
		h.fail(w, &Failure{http.StatusConflict, "moved", moved.Error(), "ask /v1/table again and start from its geometry"})
	case err != nil:
		h.fail(w, badRequest(err.Error(), "ranges go from 0 to the number of digests - 1; a comparison is a frame of pages with the digests of one range"))
	default:
		writeFrame(w, frame)
	}
}

func (h *handler) batch(w http.ResponseWriter, r *http.Request) {
	frame, err := h.body(w, r, h.MaxBatchBytes)
	if err != nil {
		h.fail(w, err)
		return
	}
	ack, err := h.c.Batch(frame)
	if err != nil {
		h.fail(w, badRequest(err.Error(), "the gateway's module and the control service must speak the same wire version"))
		return
	}
	writeFrame(w, ack)
}

// maxDigestsBytes is several times a frame with the digests of one range.
const maxDigestsBytes = 8 << 10

func writeFrame(w http.ResponseWriter, frame []byte) {
	w.Header().Set("Content-Type", frameType)
	w.Header().Set("Content-Length", strconv.Itoa(len(frame)))
	_, _ = w.Write(frame)
}

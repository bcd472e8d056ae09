package api

import "net/http"

// HeartbeatAnswer is the answer of POST /v1/heartbeat.
type HeartbeatAnswer struct {
	// Applied is false for a heartbeat that was heard before.
	Applied bool `json:"applied"`
	// Cache is what became of the cache part: applied, ignored, or none.
	Cache string `json:"cache"`
	// Reason says why something wasn't applied.
	Reason string `json:"reason,omitempty"`
	// WantComplete asks for a complete list: nothing is known of this process's
	// cache by its heartbeats.
	WantComplete bool `json:"want_complete"`
}

func (h *handler) heartbeat(w http.ResponseWriter, r *http.Request) {
	body, err := h.body(w, r, h.MaxHeartbeatBytes, jsonType)
	var answer HeartbeatAnswer
	if err == nil {
		answer, err = h.c.Heartbeat(body)
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	h.answer(w, http.StatusOK, answer)
}

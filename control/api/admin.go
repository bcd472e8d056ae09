package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

func (h *handler) healthz(w http.ResponseWriter, _ *http.Request) {
	h.answer(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (h *handler) readyz(w http.ResponseWriter, _ *http.Request) {
	r := h.c.Readiness()
	status := http.StatusOK
	if !r.Ready {
		status = http.StatusServiceUnavailable
	}
	h.answer(w, status, r)
}

func (h *handler) openapi(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", yamlType)
	_, _ = w.Write(h.OpenAPI)
}

func (h *handler) status(w http.ResponseWriter, _ *http.Request) {
	h.answer(w, http.StatusOK, h.c.Status())
}

func (h *handler) workers(w http.ResponseWriter, _ *http.Request) {
	h.answer(w, http.StatusOK, struct {
		Workers []Worker `json:"workers"`
	}{h.c.Status().Workers})
}

func (h *handler) putWorkers(w http.ResponseWriter, r *http.Request) {
	body, err := h.body(w, r, h.MaxDocumentBytes, yamlType, jsonType)
	if err == nil {
		err = h.c.PutWorkers(body)
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	h.workers(w, r)
}

func (h *handler) policy(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(append(h.c.Policy(), '\n'))
}

func (h *handler) putPolicy(w http.ResponseWriter, r *http.Request) {
	body, err := h.body(w, r, h.MaxDocumentBytes, yamlType, jsonType)
	if err == nil {
		err = h.c.PutPolicy(body)
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	h.policy(w, r)
}

// object reads a small JSON body into v, strictly.
func (h *handler) object(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := h.body(w, r, 64<<10, jsonType)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return badRequest("the body is not as expected: "+err.Error(), "see /openapi.yaml for the keys")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badRequest("something follows the JSON object", "send one object")
	}
	return nil
}

func (h *handler) mode(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Off  *bool   `json:"off"`
		Pool *string `json:"pool"`
		Mode *string `json:"mode"`
	}
	err := h.object(w, r, &body)
	switch {
	case err != nil:
	case body.Off != nil && body.Pool == nil && body.Mode == nil:
		err = h.c.SetOff(*body.Off)
	case body.Off == nil && body.Pool != nil && body.Mode != nil:
		err = h.c.SetMode(*body.Pool, *body.Mode)
	default:
		err = badRequest("neither a switch of the fleet nor of a pool", `send {"off": true|false} or {"pool": "name", "mode": "observe"|"route"|"enforce"}`)
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	h.policy(w, r)
}

func (h *handler) drain(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Address string `json:"address"`
		Drain   *bool  `json:"drain"`
	}
	err := h.object(w, r, &body)
	if err == nil {
		err = h.c.Drain(body.Address, body.Drain == nil || *body.Drain)
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	h.workers(w, r)
}

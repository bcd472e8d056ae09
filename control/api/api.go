// Package api is the control service's HTTP face.
//
// A request's way through the package: the mux matches method and path, the
// guard asks for the bearer token (all but the health paths), the body is read
// up to its limit, and one method of [Control] does the work. What goes wrong is
// answered as {"error":{"code","message","remedy"}}. docs/openapi.yaml
// describes every path; a test holds the two together.
package api

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/warmpath/warmpath/control/publish"
	"github.com/warmpath/warmpath/shared/policy"
)

// Control is what the API asks of the control service.
type Control interface {
	Table() *publish.Table
	// Serving is closed once the table may be handed out.
	Serving() <-chan struct{}
	// Stopping is closed when long-polls must end.
	Stopping() <-chan struct{}
	// Batch applies a batch frame and returns the ack frame.
	Batch(frame []byte) ([]byte, error)
	// Heartbeat takes the JSON of a heartbeat in.
	Heartbeat(body []byte) (HeartbeatAnswer, error)
	Status() Status
	Readiness() Readiness
	SetOff(off bool) error
	SetMode(pool, mode string) error
	PutWorkers(body []byte) error
	PutPolicy(body []byte) error
	Policy() []byte
	Drain(address string, on bool) error
	// Entries lists up to pages pages of the published table from page first on;
	// epoch 0 is the current one, *publish.Moved says that another isn't.
	Entries(epoch uint64, first, pages int) (Entries, error)
	// Top lists the hottest entries of a pool, "" for all.
	Top(pool string, limit int) ([]Entry, error)
	// Quota is what admission does; PutQuota replaces its settings, or with dry only says what would
	// change.
	Quota(history bool) Quota
	PutQuota(body []byte, dry bool) (QuotaChange, error)
	// Vocabulary is piece n of a vocabulary that the policy names, nil for none.
	Vocabulary(hash policy.Hash, n int) []byte
}

// Failure is an error with an HTTP status and what the user can do about it.
type Failure struct {
	Status  int
	Code    string
	Message string
	Remedy  string
}

// Error says both in a line, for logs and for who starts the service.
func (f *Failure) Error() string {
	if f.Remedy == "" {
		return f.Message
	}
	return f.Message + " (" + f.Remedy + ")"
}

// Config of the handler.
type Config struct {
	Token string // "" lets everybody in
	// HeartbeatToken opens POST /v1/heartbeat and nothing else; "" none.
	HeartbeatToken string
	OpenAPI        []byte
	Metrics        http.Handler
	Log            *slog.Logger
	// They bound the bodies.
	MaxBatchBytes, MaxDocumentBytes, MaxHeartbeatBytes int64
}

// MaxWait bounds the wait of a long-poll.
const MaxWait = 60 * time.Second

const (
	frameType = "application/octet-stream"
	jsonType  = "application/json"
	yamlType  = "application/yaml"
)

type handler struct {
	Config
	c Control
}

// New returns the handler.
func New(c Control, cfg Config) http.Handler {
	h := &handler{Config: cfg, c: c}
	mux := http.NewServeMux()
	open := func(pattern string, f http.HandlerFunc) { mux.HandleFunc(pattern, f) }
	guarded := func(pattern string, f http.HandlerFunc) { mux.HandleFunc(pattern, h.guard(f, cfg.Token)) }
	open("GET /healthz", h.healthz)
	open("GET /readyz", h.readyz)
	guarded("GET /openapi.yaml", h.openapi)
	guarded("GET /metrics", cfg.Metrics.ServeHTTP)
	guarded("GET /v1/table", h.table)
	guarded("GET /v1/table/pages", h.pages)
	guarded("POST /v1/table/pages", h.pages)
	guarded("GET /v1/table/entries", h.entries)
	guarded("GET /v1/table/top", h.top)
	guarded("GET /v1/vocabulary/{hash}", h.vocabulary)
	guarded("POST /v1/batch", h.batch)
	mux.HandleFunc("POST /v1/heartbeat", h.guard(h.heartbeat, cfg.Token, cfg.HeartbeatToken))
	guarded("GET /v1/status", h.status)
	guarded("POST /v1/mode", h.mode)
	guarded("GET /v1/workers", h.workers)
	guarded("PUT /v1/workers", h.putWorkers)
	guarded("POST /v1/workers/drain", h.drain)
	guarded("GET /v1/policy", h.policy)
	guarded("PUT /v1/policy", h.putPolicy)
	guarded("GET /v1/quota", h.quota)
	guarded("PUT /v1/quota", h.putQuota)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			h.unmatched(mux, w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// guard asks for one of the tokens. Digests are compared, so neither content nor
// length of a token shows in the time it takes.
func (h *handler) guard(next http.HandlerFunc, tokens ...string) http.HandlerFunc {
	if h.Token == "" {
		return next
	}
	var digests [][sha256.Size]byte
	for _, token := range tokens {
		if token != "" {
			digests = append(digests, sha256.Sum256([]byte(token)))
		}
	}
	return func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		given := sha256.Sum256([]byte(token))
		known := 0
		for i := range digests {
			known |= subtle.ConstantTimeCompare(given[:], digests[i][:])
		}
		if !strings.EqualFold(scheme, "Bearer") || known != 1 {
			w.Header().Set("WWW-Authenticate", `Bearer realm="warmpath-control"`)
			h.fail(w, &Failure{http.StatusUnauthorized, "unauthorized", "missing or wrong bearer token", "send Authorization: Bearer <token>, the token the control service was started with"})
			return
		}
		next(w, r)
	}
}

// unmatched tells a wrong method from a wrong path.
func (h *handler) unmatched(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} {
		probe := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := mux.Handler(probe); pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		h.fail(w, &Failure{http.StatusNotFound, "not_found", "no such path", "see /openapi.yaml for the paths"})
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	h.fail(w, &Failure{http.StatusMethodNotAllowed, "method_not_allowed", r.Method + " is not for this path", "use " + strings.Join(allowed, " or ")})
}

func (h *handler) fail(w http.ResponseWriter, err error) {
	var f *Failure
	if !errors.As(err, &f) {
		h.Log.Error("request failed", "err", err)
		f = &Failure{http.StatusInternalServerError, "internal", err.Error(), "see the log of the control service"}
	}
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
			Remedy  string `json:"remedy,omitempty"`
		} `json:"error"`
	}
	body.Error.Code, body.Error.Message, body.Error.Remedy = f.Code, f.Message, f.Remedy
	h.answer(w, f.Status, body)
}

func (h *handler) answer(w http.ResponseWriter, status int, body any) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false) // people read it in a terminal
	if err := enc.Encode(body); err != nil {
		h.Log.Error("answer can't be written as JSON", "err", err)
		http.Error(w, "internal", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes())
}

// body reads a request body of one of the given media types; none given accepts
// any.
func (h *handler) body(w http.ResponseWriter, r *http.Request, limit int64, types ...string) ([]byte, error) {
	if given := r.Header.Get("Content-Type"); len(types) > 0 {
		media, _, err := mime.ParseMediaType(given)
		ok := false
		for _, t := range types {
			ok = ok || err == nil && media == t
		}
		if !ok {
			return nil, &Failure{http.StatusUnsupportedMediaType, "unsupported_media_type", "content type " + strconv.Quote(given), "send " + strings.Join(types, " or ")}
		}
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &Failure{http.StatusRequestEntityTooLarge, "too_large", "the body is over " + strconv.FormatInt(limit, 10) + " bytes", "send less at once"}
	case err != nil:
		return nil, &Failure{http.StatusBadRequest, "bad_request", "the body ended early: " + err.Error(), "send it again"}
	}
	return b, nil
}

func badRequest(what, remedy string) *Failure {
	return &Failure{http.StatusBadRequest, "bad_request", what, remedy}
}

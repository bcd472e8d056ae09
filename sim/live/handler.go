package live

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/warmpath/warmpath/sim/dialect"
	"github.com/warmpath/warmpath/sim/engine"
	"github.com/warmpath/warmpath/sim/text"
)

// maxBodyBytes is far above any prompt that fits a context.
const maxBodyBytes = 64 << 20

// ServeHTTP routes by path; an unknown one is 404.
func (w *Worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	fault := w.Fault()
	if fault == Hang {
		w.untilLifted(r)
		reset(rw)
		return
	}
	rw.Header()["X-Sim-Worker"] = []string{w.config.Name}
	switch r.URL.Path {
	case "/health", "/ping":
		if fault == Unhealthy {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
		return
	case "/metrics":
		w.serveMetrics(rw)
		return
	case "/sim/stats":
		w.serveStats(rw)
		return
	case "/sim/fault":
		w.serveFault(rw, r)
		return
	case "/version":
		writeJSON(rw, http.StatusOK, []byte(`{"version":"warmpath-sim"}`))
		return
	case "/v1/models":
		w.serveModels(rw)
		return
	case "/tokenize":
		if r.Method == http.MethodPost {
			w.serveTokenize(rw, r)
			return
		}
	}
	endpoint, ok := dialect.EndpointOf(r.URL.Path)
	if !ok {
		http.NotFound(rw, r)
		return
	}
	if r.Method != http.MethodPost {
		rw.Header().Set("Allow", http.MethodPost)
		writeError(rw, endpoint, &dialect.Error{Status: http.StatusMethodNotAllowed, Type: "MethodNotAllowed", Message: "use POST"})
		return
	}
	c := callPool.Get().(*call)
	c.wake = make(chan struct{}, 1)
	defer c.recycle()
	c.serve(w, fault, endpoint, rw, r)
}

// A call is one request in its handler: scratch memory, used again.
type call struct {
	body     []byte
	parser   dialect.Parser
	requests []engine.Request
	flows    []flow // written by the driver
	seen     []flow // copy of them, and what was written to the client
	answers  [][]byte
	out      []byte
	tokens   []text.Token
	prompt   []text.Token  // in tokens of the worker's Tokenizer
	wake     chan struct{} // of this request alone
}

var callPool = sync.Pool{New: func() any { return &call{} }}

func (c *call) recycle() {
	if cap(c.body) <= 1<<20 {
		callPool.Put(c)
	}
}

func (c *call) serve(w *Worker, fault Fault, endpoint dialect.Endpoint, rw http.ResponseWriter, r *http.Request) {
	if err := c.readBody(r); err != nil {
		writeError(rw, endpoint, err)
		return
	}
	switch fault {
	case HangRequests:
		w.untilLifted(r)
		reset(rw)
		return
	case ResetBeforeHeaders:
		reset(rw)
		return
	case Refuse:
		writeError(rw, endpoint, w.busy())
		return
	case InternalError:
		writeError(rw, endpoint, &dialect.Error{Status: http.StatusInternalServerError, Type: "InternalServerError", Message: "EngineCore encountered an issue."})
		return
	}
	request, bad := c.parser.Parse(endpoint, c.body)
	if bad == nil {
		bad = c.plan(w, request)
	}
	if bad != nil {
		writeError(rw, endpoint, bad)
		return
	}
	d := w.driver.Load()
	if err := d.submit(c.flows, c.requests); err != nil {
		if errors.Is(err, engine.ErrQueueFull) {
			writeError(rw, endpoint, w.busy())
		} else {
			writeError(rw, endpoint, &dialect.Error{Status: http.StatusBadRequest, Type: "BadRequestError", Message: err.Error()})
		}
		return
	}
	reply := dialect.Reply{
		Endpoint: endpoint, Model: request.Model, Created: time.Now().Unix(), Worker: w.config.Name,
		ID:           strconv.FormatUint(w.replies.Add(1), 16) + "-" + w.config.Name,
		IncludeUsage: request.IncludeUsage || w.config.AlwaysUsage,
		Length:       c.requests[0].OutputTokens == request.MaxTokens,
	}
	var alive bool
	if request.Stream && endpoint != dialect.Embeddings {
		alive = c.stream(w, d, fault, &reply, rw, r)
	} else {
		alive = c.whole(d, &reply, rw, r)
	}
	if !alive {
		d.abort(c.flows)
	}
}

func (c *call) readBody(r *http.Request) *dialect.Error {
	tooLarge := &dialect.Error{Status: http.StatusRequestEntityTooLarge, Type: "BadRequestError", Message: "the body is larger than 64 MiB"}
	if r.ContentLength > maxBodyBytes {
		return tooLarge
	}
	if need := int(r.ContentLength) + 1; cap(c.body) < need {
		c.body = make([]byte, 0, need+need/4+512)
	}
	c.body = c.body[:0]
	for {
		if len(c.body) == cap(c.body) {
			c.body = append(c.body, 0)[:len(c.body)]
		}
		n, err := r.Body.Read(c.body[len(c.body):cap(c.body)])
		c.body = c.body[:len(c.body)+n]
		if len(c.body) > maxBodyBytes {
			return tooLarge
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return &dialect.Error{Status: http.StatusBadRequest, Type: "BadRequestError", Message: "the body broke off"}
		}
	}
}

// plan fixes each choice's answer and makes the sequences for the engine.
func (c *call) plan(w *Worker, request *dialect.Request) *dialect.Error {
	if !w.serves(request.Model) {
		return &dialect.Error{Status: http.StatusNotFound, Type: "NotFoundError", Message: "The model `" + request.Model + "` does not exist."}
	}
	choices := len(request.Prompts) * request.N
	if request.Endpoint != dialect.Chat && request.Endpoint != dialect.Completions {
		choices = len(request.Prompts)
	}
	if w.exact != nil && len(request.Prompts) == 1 {
		if tokens, ok := w.exact.prompt(request.Endpoint, c.body, c.prompt[:0]); ok {
			c.prompt, request.Prompts[0] = tokens, tokens
		}
	}
	c.requests, c.flows, c.seen = c.requests[:0], c.flows[:0], c.seen[:0]
	for len(c.answers) < choices {
		c.answers = append(c.answers, nil)
	}
	c.answers = c.answers[:choices]
	// The engine and the driver keep these, so they are not scratch.
	c.flows = make([]flow, choices)
	c.seen = append(c.seen, c.flows...)
	root := engine.RootHash(request.CacheSalt)
	for i := range choices {
		prompt := request.Prompts[i*len(request.Prompts)/choices]
		fingerprint := text.Fingerprint(prompt) + uint64(i%request.N)<<1
		output := 0
		c.answers[i] = c.answers[i][:0]
		if request.Endpoint != dialect.Embeddings {
			output = w.answerTokens(request, fingerprint, w.config.MaxModelTokens-len(prompt))
			c.answers[i] = text.AppendAnswer(c.answers[i], fingerprint, output)
		}
		if total := len(prompt) + max(output, request.MaxTokens, 1); total > w.config.MaxModelTokens {
			return &dialect.Error{
				Status: http.StatusBadRequest, Type: "BadRequestError",
				Message: "This model's maximum context length is " + strconv.Itoa(w.config.MaxModelTokens) +
					" tokens. However, you requested " + strconv.Itoa(total) + " tokens.",
			}
		}
		c.tokens = append(c.tokens[:0], prompt...)
		if w.exact != nil {
			c.tokens = w.exact.appendText(c.tokens, c.answers[i], output)
		} else {
			c.tokens = text.AppendTokens(c.tokens, c.answers[i])
		}
		c.flows[i].wake = c.wake
		c.requests = append(c.requests, engine.Request{
			PromptTokens: len(prompt), OutputTokens: output,
			Blocks:      engine.AppendBlockHashes(make([]engine.BlockHash, 0, len(c.tokens)/engine.BlockTokens), root, c.tokens),
			EventTokens: w.eventTokens(request),
		})
	}
	return nil
}

func (w *Worker) serves(model string) bool {
	for _, m := range w.config.Models {
		if m == model {
			return true
		}
	}
	return len(w.config.Models) == 0
}

func (w *Worker) eventTokens(request *dialect.Request) int {
	if !request.Stream || w.config.EventTokens < 0 {
		return 0
	}
	return w.config.EventTokens
}

// answerTokens is max_tokens if the client ignores the end of text, otherwise
// where this prompt's answer ends by itself: between a quarter and 7/4 of the
// configured mean.
func (w *Worker) answerTokens(request *dialect.Request, fingerprint uint64, room int) int {
	if request.IgnoreEOS && request.MaxTokens > 0 {
		return request.MaxTokens
	}
	mean := uint64(w.config.AnswerTokens)
	natural := max(1, int(mean/4+fingerprint>>20%(mean+mean/2+1)))
	natural = min(natural, max(room, 1))
	if request.MaxTokens > 0 {
		return min(natural, request.MaxTokens)
	}
	return natural
}

func (w *Worker) busy() *dialect.Error {
	return &dialect.Error{
		Status: w.config.RefusalStatus, Type: http.StatusText(w.config.RefusalStatus),
		Message: "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.",
	}
}

func writeError(rw http.ResponseWriter, endpoint dialect.Endpoint, e *dialect.Error) {
	writeJSON(rw, e.Status, dialect.AppendError(nil, endpoint, e))
}

var (
	contentJSON = []string{"application/json"}
	contentSSE  = []string{"text/event-stream; charset=utf-8"}
)

func writeJSON(rw http.ResponseWriter, status int, body []byte) {
	h := rw.Header()
	h["Content-Type"] = contentJSON
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	rw.WriteHeader(status)
	_, _ = rw.Write(body) // a client that left is noticed by its context
}

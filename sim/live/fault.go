package live

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// A Fault is a way in which a worker fails while it is set. Health checks and
// metrics go on unless said.
type Fault int32

// Faults.
const (
	// Healthy ends any other fault.
	Healthy Fault = iota
	// Down refuses connections and resets the open ones. Its cache survives
	// (a cut network); Restart loses it too.
	Down
	// Hang accepts everything, health checks included, and answers nothing.
	Hang
	// HangRequests answers health checks and metrics only.
	HangRequests
	// Refuse answers every request with the status for a full queue.
	Refuse
	// ResetBeforeHeaders reads the request and resets the connection.
	ResetBeforeHeaders
	// ResetAfterHeaders sends the headers and the first token, then resets.
	ResetAfterHeaders
	// Stall sends the headers and the first token, then nothing more, as an
	// engine does that dies with its socket open.
	Stall
	// Slow runs the engine at a tenth of its speed.
	Slow
	// Unhealthy answers health checks with 503 and serves all the same.
	Unhealthy
	// InternalError answers every request with 500.
	InternalError
)

var faultNames = [...]string{
	"healthy", "down", "hang", "hang-requests", "refuse", "reset-before-headers", "reset-after-headers", "stall",
	"slow", "unhealthy", "internal-error",
}

func (f Fault) String() string { return faultNames[f] }

// ParseFault reads the name of a fault, e.g. "reset-after-headers".
func ParseFault(name string) (Fault, error) {
	for i, n := range faultNames {
		if n == name {
			return Fault(i), nil
		}
	}
	return 0, fmt.Errorf("live: no fault is called %q: use one of %q", name, faultNames)
}

const slowFactor = 10

// Fault that is set.
func (w *Worker) Fault() Fault { return Fault(w.fault.Load()) }

// SetFault sets the fault in place of the one before. It fails only if a
// worker that was Down cannot have its address back.
func (w *Worker) SetFault(f Fault) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.Fault()
	if before == Down && f != Down {
		l, err := net.Listen("tcp", w.address)
		if err != nil {
			return fmt.Errorf("live: bring worker %s back: %w", w.config.Name, err)
		}
		w.serve(l)
	}
	w.fault.Store(int32(f))
	w.lift()
	w.lifted = make(chan struct{})
	slowness := 1.0
	if f == Slow {
		slowness = slowFactor
	}
	w.driver.Load().setSlowness(slowness)
	if f == Down && before != Down {
		err := w.server.Close()
		w.serving.Wait()
		if err != nil && !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("live: take worker %s down: %w", w.config.Name, err)
		}
	}
	return nil
}

func (w *Worker) lift() {
	select {
	case <-w.lifted:
	default:
		close(w.lifted)
	}
}

// untilLifted waits for the present fault to end or the client to go.
func (w *Worker) untilLifted(r *http.Request) {
	w.mu.Lock()
	lifted := w.lifted
	w.mu.Unlock()
	select {
	case <-lifted:
	case <-r.Context().Done():
	}
}

// reset ends the connection of a request with a TCP reset.
func reset(rw http.ResponseWriter) {
	conn, _, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2 has no hijack: a stream reset
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	conn.Close()
}

// serveFault answers POST /sim/fault?set=NAME[&seconds=N]: the fault is set
// after the reply, and taken back after so many real seconds if given.
func (w *Worker) serveFault(rw http.ResponseWriter, r *http.Request) {
	f, err := ParseFault(r.FormValue("set"))
	var hold time.Duration
	if s := r.FormValue("seconds"); s != "" && err == nil {
		hold, err = time.ParseDuration(s + "s")
	}
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	rw.WriteHeader(http.StatusNoContent)
	_ = http.NewResponseController(rw).Flush()
	go func() {
		// Down waits for the server to end, so not in its handler.
		if w.SetFault(f) == nil && hold > 0 {
			time.AfterFunc(hold, func() {
				if w.Fault() == f {
					_ = w.SetFault(Healthy)
				}
			})
		}
	}()
}

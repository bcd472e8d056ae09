package gateway

import (
	"io"
	"log/slog"
	"sync"
	"time"
)

// accessEntry is what the log tells of an exchange beyond the request itself.
type accessEntry struct {
	status    int
	bytes     int64
	firstByte time.Duration
	decision  string
	pool      string
	details   string
}

// accessLog writes one JSON line per exchange, the module's decision among it.
type accessLog struct{ out *slog.Logger }

func newAccessLog(w io.Writer) *accessLog {
	if w == nil {
		return nil
	}
	return &accessLog{out: slog.New(slog.NewJSONHandler(&lockedWriter{w: w}, nil))}
}

func (l *accessLog) write(x *exchange) {
	if l == nil {
		return
	}
	l.out.Info("request",
		"method", x.r.Method, "path", x.r.URL.Path, "status", x.log.status, "bytes", x.log.bytes,
		"ms", time.Since(x.start).Milliseconds(), "first_byte_ms", x.log.firstByte.Milliseconds(),
		"upstream", x.upstream(), "attempts", len(x.tried), "pool", x.log.pool,
		"decision", x.log.decision, "details", x.log.details)
}

// lockedWriter keeps lines whole whatever the writer is.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

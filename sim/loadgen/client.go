package loadgen

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/warmpath/warmpath/sim/pace"
	"github.com/warmpath/warmpath/sim/workload"
)

type client struct {
	config    *Config
	transport *http.Transport
	urls      map[string]*url.URL
}

func newClient(c *Config) *client {
	cl := &client{config: c, urls: map[string]*url.URL{}, transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		MaxIdleConns:        0,
		MaxIdleConnsPerHost: 4096,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
		WriteBufferSize:     64 << 10,
		ReadBufferSize:      8 << 10,
	}}
	for _, t := range c.Targets {
		if u, err := url.Parse(t + "/v1/chat/completions"); err == nil {
			cl.urls[t] = u
		}
	}
	return cl
}

func (cl *client) close() { cl.transport.CloseIdleConnections() }

// A stream is the scratch memory to read one reply.
type stream struct {
	reader *bufio.Reader
	answer []byte // as it stood between quotes
	long   []byte // a line longer than the reader's buffer
}

var streams = sync.Pool{New: func() any { return &stream{reader: bufio.NewReaderSize(nil, 16<<10)} }}

// play sends the present turn of a conversation and moves it on.
func (cl *client) play(ctx context.Context, target string, c *workload.Conversation, late time.Duration) ended {
	o := Outcome{
		Session: c.Index(), Turn: c.TurnIndex(), Tenant: c.Session().Tenant,
		Target: target, Attempts: 1, Late: late,
	}
	s := streams.Get().(*stream)
	defer streams.Put(s)
	s.answer = s.answer[:0]
	cl.send(ctx, target, c, s, &o)
	if o.Err != "" {
		return ended{outcome: o, conversation: c}
	}
	return ended{outcome: o, conversation: c, more: c.Answered(s.answer)}
}

func (cl *client) send(ctx context.Context, target string, c *workload.Conversation, s *stream, o *Outcome) {
	ctx, cancel := context.WithTimeout(ctx, cl.config.Timeout)
	defer cancel()
	body := c.Body()
	request := (&http.Request{
		Method: http.MethodPost, URL: cl.urls[target], Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        make(http.Header, 4+len(cl.config.Header)),
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
		GetBody:       func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
	}).WithContext(ctx)
	for k, v := range cl.config.Header {
		request.Header[k] = v
	}
	request.Header["Content-Type"] = []string{"application/json"}
	request.Header.Set(cl.config.SessionHeader, "s-"+strconv.Itoa(c.Index()))

	clock := cl.config.Clock
	sent := clock.Now()
	response, err := cl.transport.RoundTrip(request)
	if err != nil {
		o.Err, o.Total = failure(ctx, err), clock.Now()-sent
		return
	}
	defer response.Body.Close()
	o.Worker = response.Header.Get("X-Sim-Worker")
	if n, err := strconv.Atoi(response.Header.Get("X-Warmpath-Attempts")); err == nil && n > 1 {
		o.Attempts = n
	}
	if response.StatusCode != http.StatusOK {
		_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10))
		o.Err, o.Total = "status "+strconv.Itoa(response.StatusCode), clock.Now()-sent
		return
	}
	s.reader.Reset(response.Body)
	finished, err := s.read(clock, sent, o)
	o.Total = clock.Now() - sent
	switch {
	case err != nil:
		o.Err = failure(ctx, err)
		if o.Err == "connection" {
			o.Err = "broken stream"
		}
	case !finished || len(s.answer) == 0:
		o.Err = "broken stream"
	}
	s.reader.Reset(nil)
}

func failure(ctx context.Context, err error) string {
	var timeout net.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return "cancelled"
	case ctx.Err() != nil, errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return "connection"
}

var (
	dataPrefix  = []byte("data:")
	doneMark    = []byte("[DONE]")
	contentMark = []byte(`"content":"`)
	usageMark   = []byte(`"prompt_tokens"`)
)

// read takes the stream apart, to its end. It reports whether [DONE] came.
func (s *stream) read(clock *pace.Clock, sent time.Duration, o *Outcome) (finished bool, err error) {
	for {
		line, err := s.line()
		if errors.Is(err, io.EOF) {
			return finished, nil
		}
		if err != nil {
			return finished, err
		}
		data, isData := bytes.CutPrefix(line, dataPrefix)
		if !isData {
			continue
		}
		data = bytes.TrimSpace(data)
		if bytes.Equal(data, doneMark) {
			finished = true
			continue
		}
		if bytes.Contains(data, contentMark) {
			quoted := gjson.GetBytes(data, "choices.0.delta.content").Raw
			if len(quoted) > 2 {
				if o.TTFT == 0 {
					o.TTFT = clock.Now() - sent
				}
				s.answer = append(s.answer, quoted[1:len(quoted)-1]...)
			}
		}
		if bytes.Contains(data, usageMark) {
			usage := gjson.GetBytes(data, "usage")
			o.PromptTokens = int(usage.Get("prompt_tokens").Int())
			o.OutputTokens = int(usage.Get("completion_tokens").Int())
			o.CachedTokens = int(usage.Get("prompt_tokens_details.cached_tokens").Int())
		}
	}
}

// line reads up to the next line feed, which is cut off with a carriage return
// before it. It is valid until the next call.
func (s *stream) line() ([]byte, error) {
	line, err := s.reader.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		s.long = s.long[:0]
		for errors.Is(err, bufio.ErrBufferFull) {
			s.long = append(s.long, line...)
			line, err = s.reader.ReadSlice('\n')
		}
		s.long = append(s.long, line...)
		line = s.long
	}
	if err != nil {
		if err == io.EOF && len(line) > 0 {
			return nil, io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

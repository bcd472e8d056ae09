package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Publish implements Transport.
func (t *natsTransport) Publish(subject string, data []byte) error {
	if err := t.conn.Publish(subject, data); err != nil {
		return fmt.Errorf("publish %s: %w", subject, err)
	}
	return nil
}

// Subscribe implements Transport.
func (t *natsTransport) Subscribe(subject string, f func(data []byte, reply string)) (stop func(), err error) {
	sub, err := t.conn.Subscribe(subject, func(m *nats.Msg) { f(m.Data, m.Reply) })
	if err == nil {
		err = sub.SetPendingLimits(pendingMessages, pendingBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("subscribe %s: %w", subject, err)
	}
	return func() { _ = sub.Unsubscribe() }, nil // fails when the connection is closed, which ends it too
}

// Request implements Transport.
func (t *natsTransport) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	m, err := t.conn.RequestWithContext(ctx, subject, data)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("ask %s: %w", subject, ErrNobody)
	case err != nil:
		return nil, fmt.Errorf("ask %s: %w", subject, err)
	}
	return m.Data, nil
}

// failed hears of errors that no call returns.
func (t *natsTransport) failed(_ *nats.Conn, sub *nats.Subscription, err error) {
	subject := ""
	if sub != nil {
		subject = sub.Subject
	}
	if errors.Is(err, nats.ErrSlowConsumer) {
		t.dropped.Add(1)
	}
	t.cfg.Log.Warn("NATS", "subject", subject, "err", err)
}

// Get implements Transport.
func (t *natsTransport) Get(ctx context.Context, key string) (Entry, error) {
	kv := t.kv.Load()
	if kv == nil {
		return Entry{}, t.notReady()
	}
	e, err := kv.Get(ctx, key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return Entry{}, ErrNoKey
	case err != nil:
		return Entry{}, fmt.Errorf("read %s: %w", key, failure(err))
	}
	return Entry{e.Value(), e.Revision()}, nil
}

// Put implements Transport.
func (t *natsTransport) Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	kv := t.kv.Load()
	if kv == nil {
		return 0, t.notReady()
	}
	var next uint64
	var err error
	if revision == 0 {
		next, err = kv.Create(ctx, key, value)
	} else {
		next, err = kv.Update(ctx, key, value, revision)
	}
	switch {
	case errors.Is(err, jetstream.ErrKeyExists), wrongRevision(err):
		return 0, ErrConflict
	case err != nil:
		return 0, fmt.Errorf("write %s: %w", key, failure(err))
	}
	return next, nil
}

// Watch implements Transport.
func (t *natsTransport) Watch(ctx context.Context, key string, f func(Entry)) error {
	kv := t.kv.Load()
	if kv == nil {
		return t.notReady()
	}
	w, err := kv.Watch(ctx, key)
	if err != nil {
		return fmt.Errorf("watch %s: %w", key, failure(err))
	}
	defer func() { _ = w.Stop() }() // fails when the connection is closed, which ends it too
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.done:
			return nats.ErrConnectionClosed
		case e, open := <-w.Updates():
			switch {
			case !open:
				return errors.New("updates ended")
			case e != nil && e.Operation() == jetstream.KeyValuePut: // nil: all there was has come
				f(Entry{e.Value(), e.Revision()})
			}
		}
	}
}

// Problem implements Transport.
func (t *natsTransport) Problem() error {
	if t.kv.Load() == nil {
		return t.notReady()
	}
	if s := t.conn.Status(); s != nats.CONNECTED {
		return fmt.Errorf("not connected to NATS: %w", lastError(t.conn))
	}
	return nil
}

// Dropped implements Transport.
func (t *natsTransport) Dropped() uint64 { return t.dropped.Load() }

func (t *natsTransport) notReady() error {
	if why := t.problem.Load(); why != nil {
		return fmt.Errorf("%w: %s", ErrNotReady, *why)
	}
	return ErrNotReady
}

func lastError(conn *nats.Conn) error {
	if err := conn.LastError(); err != nil {
		return err
	}
	return errors.New(strings.ToLower(conn.Status().String()))
}

// failure says what an error of JetStream means here.
func failure(err error) error {
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) {
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	return err
}

func wrongRevision(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}

// Codes of JetStream that mean that there can't be so many copies.
const (
	codeNoPeers   = 10005 // no suitable peers for placement
	codeNoCluster = 10074 // replicas > 1 not supported in non-clustered mode
)

func tooFewServers(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == codeNoPeers || api.ErrorCode == codeNoCluster)
}

// bucketProblem is a line about why the bucket can't be used.
func bucketProblem(err error) string {
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return "no majority of NATS servers, or none with JetStream, answers"
	case tooFewServers(err):
		return "not all NATS servers are there for the first time: " + err.Error()
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return "the NATS cluster has no JetStream for this account: enable it"
	}
	return err.Error()
}

// refused tells whether a server answered and didn't want this client: trying on is no use.
func refused(err error) bool {
	text := err.Error()
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrSecureConnRequired) ||
		errors.Is(err, nats.ErrSecureConnWanted) || errors.Is(err, nats.ErrNkeysNotSupported) ||
		strings.Contains(text, "tls:") || strings.Contains(text, "x509:")
}

// connectProblem says what to do about a connection that can't be made.
func connectProblem(cfg *Config, err error) error {
	text := err.Error()
	field, remedy := "urls", "check the addresses"
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), strings.Contains(strings.ToLower(text), "authorization"):
		field, remedy = "credentials", "name a file with this user's JWT and seed (nsc generate creds), or put user:password@ into urls"
	case strings.Contains(text, "tls:"), strings.Contains(text, "x509:"), errors.Is(err, nats.ErrSecureConnRequired), errors.Is(err, nats.ErrSecureConnWanted):
		field, remedy = "tls", "name the CA that signed the servers' certificates, and cert and key where they ask for one"
	}
	return Problem{field, fmt.Sprintf("connect to %s: %v", redacted(cfg.URLs), err), remedy}
}

func joined(urls []string) string { return strings.Join(urls, ",") }

// redacted leaves passwords out.
func redacted(urls []string) string {
	out := make([]string, 0, len(urls))
	for _, text := range urls {
		if u, err := url.Parse(text); err == nil {
			text = u.Redacted()
		}
		out = append(out, text)
	}
	return joined(out)
}

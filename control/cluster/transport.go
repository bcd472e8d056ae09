package cluster

import (
	"context"
	"errors"
)

// Transport is what a Cluster stands on: NATS, or in tests a network whose faults are the test's.
type Transport interface {
	// Publish sends to whoever subscribes now. It doesn't wait; what doesn't fit is an error.
	Publish(subject string, data []byte) error
	// Subscribe calls f for every message on a subject, one after the other, also for one's own;
	// reply is empty unless the sender waits for an answer.
	Subscribe(subject string, f func(data []byte, reply string)) (stop func(), err error)
	// Request sends and waits for the one answer.
	Request(ctx context.Context, subject string, data []byte) ([]byte, error)
	// Get reads a key; ErrNoKey when it doesn't exist. It may be a moment old.
	Get(ctx context.Context, key string) (Entry, error)
	// Put replaces the value that has this revision, 0 for none, and returns the new revision, which
	// is larger than any before; ErrConflict when the key has another.
	Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// Watch calls f with the newest entry of a key, now and whenever it changes, until ctx ends or
	// the watch breaks.
	Watch(ctx context.Context, key string, f func(Entry)) error
	// Problem says why the transport doesn't work at the moment, nil when it does.
	Problem() error
	// Dropped counts messages that came faster than their subscriber took them.
	Dropped() uint64
	// Close ends it. Nothing is called any more after it.
	Close()
}

// Entry is a key's value.
type Entry struct {
	Value    []byte
	Revision uint64
}

var (
	// ErrNoKey says that a key doesn't exist.
	ErrNoKey = errors.New("no such key")
	// ErrConflict says that somebody else wrote first.
	ErrConflict = errors.New("written by another replica meanwhile")
	// ErrNobody says that nobody listens to the subject of a request.
	ErrNobody = errors.New("nobody listens")
	// ErrNotReady says that documents can't be read or written: there is no majority of servers, or
	// none was found since the start.
	ErrNotReady = errors.New("no majority of NATS servers")
)

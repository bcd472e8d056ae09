package cluster

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

func TestMessagesReachWhoSubscribes(t *testing.T) {
	begin := time.Now()
	c, err := Open(t.Context(), Config{Name: "a", Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Log(time.Since(begin))
	got := make(chan string, 1)
	stop, err := c.Subscribe("events", func(data []byte) { got <- string(data) })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := c.Publish("events", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if s := <-got; s != "hello" {
		t.Fatal(s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	leads := make(chan uint64, 1)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, Handlers{Lead: func(term uint64) { leads <- term }}) }()
	t.Log(<-leads, time.Since(begin))
	cancel()
	<-done
}

package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Client sends requests from a few goroutines, each with its own connection.
type Client struct {
	http  *http.Client
	crowd int
}

// NewClient is a crowd of that many.
func NewClient(crowd int) *Client {
	return &Client{crowd: crowd, http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: crowd, DisableCompression: true},
		Timeout:   2 * time.Minute,
	}}
}

// All runs n requests, built by make, and returns the first error.
func (c *Client) All(ctx context.Context, n int, build func(i int) (*http.Request, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for range c.crowd {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range next {
				if err := c.one(ctx, i, build); err != nil {
					cancel(err)
				}
			}
		}()
	}
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

func (c *Client) one(ctx context.Context, i int, build func(i int) (*http.Request, error)) error {
	req, err := build(i)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req.WithContext(ctx))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

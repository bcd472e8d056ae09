package bench

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
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

// All runs n requests, made by build, and returns the first error.
func (c *Client) All(ctx context.Context, n int, build func(i int) (*http.Request, error)) error {
	return c.Paced(ctx, n, 0, build)
}

// Paced is All at random moments, rate a second; 0 is as quickly as may be. More
// than the crowd are not under way at once.
func (c *Client) Paced(ctx context.Context, n, rate int, build func(i int) (*http.Request, error)) error {
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
	began, due := time.Now(), time.Duration(0)
	rng := rand.New(rand.NewPCG(11, uint64(rate)))
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		if rate > 0 {
			due += time.Duration(rng.ExpFloat64() * float64(time.Second) / float64(rate))
			<-time.After(time.Until(began.Add(due)))
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

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// errMoved: the table got another epoch between two calls.
var errMoved = errors.New("the control service's table changes faster than it can be read; try again in a moment")

// controlService is a running control service, and how it is reached.
type controlService struct {
	url, token, tokenEnv string
	timeout              time.Duration
}

// flags adds how a control service is reached.
func (c *controlService) flags(cmd *cobra.Command) {
	c.url = defaultControl
	cmd.Flags().Var((*urlValue)(&c.url), "control", "control service")
	c.accessFlags(cmd)
}

// accessFlags are flags for a command that takes URLs as arguments.
func (c *controlService) accessFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.tokenEnv, "token-env", "WARMPATH_TOKEN", "environment variable with the bearer token")
	f.DurationVar(&c.timeout, "timeout", 10*time.Second, "of each call")
	cmd.PreRun = func(*cobra.Command, []string) { c.token = os.Getenv(c.tokenEnv) }
}

// get asks for a path. The answer is at most a few frames long.
func (c *controlService) get(ctx context.Context, path string) ([]byte, error) {
	return c.call(ctx, http.MethodGet, path, "", nil)
}

// ask decodes the answer of a path into v.
func (c *controlService) ask(ctx context.Context, path string, v any) error {
	answer, err := c.get(ctx, path)
	if err != nil {
		return err
	}
	return c.decode(path, answer, v)
}

// put sends a document in YAML or JSON to a path and decodes the answer into v.
func (c *controlService) put(ctx context.Context, path string, body []byte, v any) error {
	answer, err := c.call(ctx, http.MethodPut, path, "application/yaml", body)
	if err != nil {
		return err
	}
	return c.decode(path, answer, v)
}

func (c *controlService) decode(path string, answer []byte, v any) error {
	if err := json.Unmarshal(answer, v); err != nil {
		return fmt.Errorf("read %s of %s: %w (is that a control service, and of this version?)", path, c.url, err)
	}
	return nil
}

// call returns the answer, if it is 200. What the control service refuses is told
// with its remedy.
func (c *controlService) call(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.url, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("--control %q: %w", c.url, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := (&http.Client{Timeout: c.timeout}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the control service: %w (is it running, and is --control its address?)", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s from the control service: %w", path, err)
	case resp.StatusCode == http.StatusOK:
		return answer, nil
	case resp.StatusCode == http.StatusUnauthorized:
		return nil, fmt.Errorf("control service at %s refuses the token (put the one it was started with into the environment variable %s)", c.url, c.tokenEnv)
	case resp.StatusCode == http.StatusConflict && method == http.MethodGet:
		return nil, errMoved
	}
	var refusal struct {
		Error struct {
			Message string `json:"message"`
			Remedy  string `json:"remedy"`
		} `json:"error"`
	}
	if json.Unmarshal(answer, &refusal) != nil || refusal.Error.Message == "" {
		return nil, fmt.Errorf("control service answered %s: %s", resp.Status, bytes.TrimSpace(answer))
	}
	if refusal.Error.Remedy == "" {
		return nil, errors.New(refusal.Error.Message)
	}
	return nil, fmt.Errorf("%s (%s)", refusal.Error.Message, refusal.Error.Remedy)
}

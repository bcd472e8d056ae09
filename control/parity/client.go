package parity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxAnswer bounds what is read of one answer.
const maxAnswer = 8 << 20

// Client calls one engine.
type Client struct {
	// URL of the engine, such as http://10.0.0.7:8000.
	URL string
	// Token is sent as a bearer token unless it is empty.
	Token string
	HTTP  *http.Client
}

// status is an answer other than 200.
type status struct {
	code    int
	message string
}

func (s *status) Error() string {
	if s.message == "" {
		return fmt.Sprintf("it answers %d", s.code)
	}
	return fmt.Sprintf("it answers %d: %s", s.code, s.message)
}

// absent tells an engine that has no such path from one that refuses a request.
func absent(err error) bool {
	var s *status
	if !errors.As(err, &s) {
		return false
	}
	switch s.code {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented, http.StatusForbidden:
		return true
	}
	return false
}

// refused tells that the engine has read the request and does not take it.
func refused(err error) bool {
	var s *status
	return errors.As(err, &s) && (s.code == http.StatusBadRequest || s.code == http.StatusUnprocessableEntity)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.URL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", "warmpath-control")
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("call %s: %w", path, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return &status{resp.StatusCode, message(answer)}
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("the answer of %s is not what vLLM and SGLang answer: %w", path, err)
	}
	return nil
}

// message finds the text of an engine's error.
func message(body []byte) string {
	var e struct {
		Error  json.RawMessage `json:"error"`
		Detail string          `json:"detail"`
	}
	var inner struct {
		Message string `json:"message"`
	}
	text := strings.TrimSpace(string(body))
	if json.Unmarshal(body, &e) == nil {
		switch {
		case json.Unmarshal(e.Error, &inner) == nil && inner.Message != "":
			text = inner.Message
		case e.Detail != "":
			text = e.Detail
		}
	}
	return text[:min(len(text), 300)]
}

// models are the names that the engine serves.
func (c *Client) models(ctx context.Context) ([]string, error) {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := c.do(ctx, http.MethodGet, "/v1/models", nil, &list); err != nil {
		return nil, err
	}
	var out []string
	for _, m := range list.Data {
		out = append(out, m.ID)
	}
	return out, nil
}

// tokens is an engine's answer of /tokenize. Strs may be missing.
type tokens struct {
	IDs  []uint32 `json:"tokens"`
	Strs []string `json:"token_strs"`
}

// tokenize asks for the tokens of a body of /tokenize.
func (c *Client) tokenize(ctx context.Context, body map[string]any) (tokens, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return tokens{}, fmt.Errorf("write the request: %w", err)
	}
	var t tokens
	if err := c.do(ctx, http.MethodPost, "/tokenize", text, &t); err != nil {
		return tokens{}, err
	}
	if t.IDs == nil {
		return tokens{}, errors.New("the answer of /tokenize has no tokens")
	}
	return t, nil
}

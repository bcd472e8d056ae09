package kvevents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// ErrNoList says that an engine doesn't tell what it serves.
var ErrNoList = errors.New("the engine doesn't list its models")

// BaseModels asks an engine under which names it serves its base model (GET
// /v1/models): its adapters have a parent there. What is stored for the one says
// nothing of the others, and events only name adapters.
func BaseModels(ctx context.Context, client *http.Client, address, token string) ([]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/v1/models", nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask for models: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("ask for models: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: GET /v1/models answers %d", ErrNoList, res.StatusCode)
	}
	var list struct {
		Data []struct {
			ID     string  `json:"id"`
			Parent *string `json:"parent"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoList, err)
	}
	var base []string
	for _, m := range list.Data {
		if m.ID != "" && m.Parent == nil {
			base = append(base, m.ID)
		}
	}
	if base == nil {
		return nil, ErrNoList
	}
	return base, nil
}

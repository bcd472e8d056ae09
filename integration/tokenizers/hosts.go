package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/warmpath/warmpath/integration/guests"
)

// answer mirrors what the guest prints.
type answer struct {
	Error        string  `json:"error"`
	Nanos        []int64 `json:"nanos"`
	IDs          int     `json:"ids"`
	Bytes        int     `json:"bytes"`
	Slices       int     `json:"slices"`
	Longest      int64   `json:"longestNanos"`
	HeapBytes    uint64  `json:"heapBytes"`
	EncoderBytes uint64  `json:"encoderBytes"`
	Exhausted    bool    `json:"exhausted"`
}

// ask asks a guest.
func ask(h *guests.Host, question string, args ...any) (answer, error) {
	var a answer
	if err := h.Ask(&a, question, args...); err != nil {
		return answer{}, err
	}
	if a.Error != "" {
		return answer{}, fmt.Errorf("%s, asked %q: %s", h.Name, fmt.Sprintf(question, args...), a.Error)
	}
	return a, nil
}

// askReference asks the Python side for one pass over a framed file.
func askReference(h *guests.Host, path string) (answer, error) {
	line, err := h.Line(path + " 1")
	if err != nil {
		return answer{}, err
	}
	nanos, ids, _ := strings.Cut(line, " ")
	n, err1 := strconv.ParseInt(nanos, 10, 64)
	k, err2 := strconv.Atoi(ids)
	if err := errors.Join(err1, err2); err != nil {
		return answer{}, fmt.Errorf("%s answered %q: %w", h.Name, line, err)
	}
	return answer{Nanos: []int64{n}, IDs: k}, nil
}

package main

import (
	"fmt"
	"os"

	"github.com/warmpath/warmpath/tokenizer/hf"
)

// compiled reads a published file by tokenizer/hf and returns the .wpv bytes.
func compiled(v vocabulary, file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if v.Ranks == "" {
		spec, err := hf.Read(data)
		if err != nil {
			return nil, err
		}
		return spec.Compile()
	}
	ranks, ok := hf.Encoding(v.Ranks)
	if !ok {
		return nil, fmt.Errorf("no encoding %q; there are %v", v.Ranks, hf.Encodings())
	}
	spec, err := hf.ReadRanks(data, ranks)
	if err != nil {
		return nil, err
	}
	return spec.Compile()
}

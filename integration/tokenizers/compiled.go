package main

import (
	"os"

	"github.com/warmpath/warmpath/tokenizer/hf"
)

// compiled reads a published file by tokenizer/hf and returns the .wpv bytes.
func compiled(_ vocabulary, file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	spec, err := hf.Read(data)
	if err != nil {
		return nil, err
	}
	return spec.Compile()
}

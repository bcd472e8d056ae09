package engine

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
)

// tensor is one matrix of random weights; a shape of one dimension is a vector.
type tensor struct {
	name   string
	shape  []int
	spread float64 // standard deviation; 0 means that every weight is 1
}

func (t tensor) elements() int {
	n := 1
	for _, d := range t.shape {
		n *= d
	}
	return n
}

// writeTensors writes weights that depend on the seed alone, in the safetensors
// format: u64 little endian length of a JSON header, the header, which names
// type, shape and place of each tensor, then their elements as 32-bit floats.
// https://github.com/huggingface/safetensors
func writeTensors(path string, seed uint64, tensors []tensor) error {
	type entry struct {
		Type    string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	at := 0
	for _, t := range tensors {
		end := at + 4*t.elements()
		header[t.name] = entry{"F32", t.shape, [2]int{at, end}}
		at = end
	}
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ') // tensors are aligned
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	out := bufio.NewWriterSize(file, 1<<20)
	_, _ = out.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text))))
	_, _ = out.Write(text)
	numbers := rand.New(rand.NewPCG(seed, 0))
	var word [4]byte
	for _, t := range tensors {
		for range t.elements() {
			w := 1.0
			if t.spread > 0 {
				w = numbers.NormFloat64() * t.spread
			}
			binary.LittleEndian.PutUint32(word[:], math.Float32bits(float32(w)))
			_, _ = out.Write(word[:])
		}
	}
	if err := out.Flush(); err != nil { // tells of every write before it
		return fmt.Errorf("write %s: %w", path, err)
	}
	return file.Close()
}

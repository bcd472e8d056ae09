package vocabulary

import (
	"bytes"
	"errors"

	"github.com/warmpath/warmpath/tokenizer/hf"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// compiled is the .wpv file that data is, or that a tokenizer.json compiles to.
func compiled(data []byte) (file []byte, tokens *vocab.Vocab, err error) {
	switch {
	case bytes.HasPrefix(data, []byte("WPV")):
		file = data
	case bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")):
		spec, err := hf.Read(data)
		if err != nil {
			return nil, nil, err
		}
		if file, err = spec.Compile(); err != nil {
			return nil, nil, err
		}
	default:
		return nil, nil, errors.New("neither a .wpv file nor a tokenizer.json")
	}
	tokens, err = vocab.Load(file)
	return file, tokens, err
}

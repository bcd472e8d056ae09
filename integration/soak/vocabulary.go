package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"github.com/warmpath/warmpath/shared/wire"
	"github.com/warmpath/warmpath/tokenizer/hf"
	"github.com/warmpath/warmpath/tokenizer/vocab"
)

// vocabularyFile is a compiled vocabulary with its name.
type vocabularyFile struct {
	hash string
	file []byte
}

// name puts vocabularies into the policy, for pools of their own: the traffic's
// pool goes on as it is, with them in memory.
func (b *base) name(files []string) error {
	var exact []map[string]any
	for i, name := range files {
		data, err := os.ReadFile(filepath.Clean(name))
		if err != nil {
			return fmt.Errorf("read the vocabulary: %w", err)
		}
		if !bytes.HasPrefix(data, []byte("WPV")) {
			spec, err := hf.Read(data)
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			if data, err = spec.Compile(); err != nil {
				return fmt.Errorf("compile %s: %w", name, err)
			}
		}
		hash, err := vocab.Hash(data)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		b.vocabularies = append(b.vocabularies, vocabularyFile{hash, data})
		exact = append(exact, map[string]any{
			"pool": "pool-" + strconv.Itoa(i), "vocab": hash, "bytes": len(data), "template": "qwen3", "engine": "vllm", "active": true,
		})
	}
	if exact == nil {
		return nil
	}
	text, err := json.Marshal(exact)
	if err != nil {
		return fmt.Errorf("encode the exact section: %w", err)
	}
	b.records = wire.AppendSection(b.records, wire.SectionExact, text)
	return nil
}

func (b *base) servePiece(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.FormValue("shard"))
	for _, v := range b.vocabularies {
		if err == nil && v.hash == path.Base(r.URL.Path) && wire.ShardSize(len(v.file), n) > 0 {
			_, _ = w.Write(v.file[n*wire.ShardBytes:][:wire.ShardSize(len(v.file), n)])
			return
		}
	}
	http.NotFound(w, r)
}

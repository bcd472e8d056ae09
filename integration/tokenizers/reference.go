package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/warmpath/warmpath/integration/vocabfiles"
)

// answersVersion is part of the name of kept answers; raise it when reference.py
// answers otherwise.
var answersVersion = map[string]string{"hf": "1", "tiktoken": "2"}

//go:embed reference.py
var referenceScript []byte

// script writes the Python side to a file that its interpreter can read.
func (c cache) script() (string, error) {
	sum := sha256.Sum256(referenceScript)
	path := filepath.Join(c.dir, "reference-"+hex.EncodeToString(sum[:4])+".py")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, writeWhole(path, referenceScript)
}

// writeWhole writes a file by renaming, so that it is there whole or not at all.
func writeWhole(path string, data []byte) error {
	part := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(part, data, 0o644); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// frame joins texts as [u32 length, little endian][bytes].
func frame(texts [][]byte) []byte {
	var out []byte
	for _, t := range texts {
		out = binary.LittleEndian.AppendUint32(out, uint32(len(t)))
		out = append(out, t...)
	}
	return out
}

// reference returns the ids of each text by the vocabulary's reference; asked
// once for the same vocabulary and texts, then read from the cache.
func (c cache) reference(ctx context.Context, v vocabulary, file string, texts [][]byte, special bool) ([][]uint32, error) {
	python, err := c.python(ctx)
	if err != nil {
		return nil, err
	}
	script, err := c.script()
	if err != nil {
		return nil, err
	}
	published, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	kind, flag := "hf", "0"
	if v.Ranks != "" {
		kind = "tiktoken"
	}
	if special {
		flag = "1"
	}
	framed := frame(texts)
	key := sha256.New()
	for _, part := range [][]byte{published, framed, []byte(answersVersion[kind]), []byte(tokenizersVersion), []byte(tiktokenVersion), []byte(flag)} {
		sum := sha256.Sum256(part)
		key.Write(sum[:])
	}
	answers := filepath.Join(c.dir, "ids-"+v.Name+"-"+hex.EncodeToString(key.Sum(nil)[:8]))
	if _, err := os.Stat(answers); err != nil {
		fmt.Fprintf(os.Stderr, "ask %s's reference for %d texts\n", v.Name, len(texts))
		asked := answers + fmt.Sprintf(".texts.%d", os.Getpid())
		defer os.Remove(asked)
		if err := writeWhole(asked, framed); err != nil {
			return nil, err
		}
		if err := vocabfiles.Command(ctx, c.dir, "", python, script, "encode", kind, file, asked, answers, flag); err != nil {
			return nil, err
		}
	}
	data, err := os.ReadFile(answers)
	if err != nil {
		return nil, err
	}
	ids := make([][]uint32, 0, len(texts))
	for len(data) >= 4 {
		n := int(binary.LittleEndian.Uint32(data))
		if data = data[4:]; len(data) < 4*n {
			break
		}
		one := make([]uint32, n)
		for i := range one {
			one[i] = binary.LittleEndian.Uint32(data[4*i:])
		}
		ids, data = append(ids, one), data[4*n:]
	}
	if len(ids) != len(texts) || len(data) != 0 {
		return nil, fmt.Errorf("reference answers in %s are cut: remove the file and run again", answers)
	}
	return ids, nil
}

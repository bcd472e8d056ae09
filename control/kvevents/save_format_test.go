package kvevents

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the example of docs/formats.md")

func TestFormatsPageShowsTheBytesOfASavedSource(t *testing.T) {
	s := NewSource(Endpoint{}, Config{Pool: "pool"}, nobody{}, nil, quiet)
	stored := Event{Kind: Stored, Hashes: []uint64{0x1122334455667788}, Tokens: []uint32{1, 2, 3, 4}, BlockSize: 4}
	if _, err := s.stream.take(0, encode(1.5, stored), false); err != nil {
		t.Fatal(err)
	}
	saved, ok := s.AppendSave(nil, "me", benchTime)
	if !ok {
		t.Fatal("not saved")
	}
	var want strings.Builder
	for at := 0; at < len(saved); at += 16 {
		fmt.Fprintf(&want, "%04x % x\n", at, saved[at:min(at+16, len(saved))])
	}
	path := filepath.Join("..", "..", "docs", "formats.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), "<!-- kvevents: saved -->\n```\n")
	shown, after, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("no such example in docs/formats.md")
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+"<!-- kvevents: saved -->\n```\n"+want.String()+"```"+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want.String(), shown); diff != "" {
		t.Error(diff)
	}
}

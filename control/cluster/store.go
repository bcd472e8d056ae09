package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A store is a directory of a server inside: JetStream's files, and beside them a
// file that says what it is the store of. A server that can't read its files may
// begin with none; that file says that there were some.
const storeFile = "warmpath.json"

// storeMark is its content.
type storeMark struct {
	Version int    `json:"version"`
	Prefix  string `json:"prefix"`
	// Clustered: of one of several servers. JetStream keeps other files then.
	Clustered bool `json:"clustered"`
	// Documents: the bucket has been made.
	Documents bool `json:"documents"`
}

const storeVersion = 1

// checkStore refuses a directory that is the store of something else.
func checkStore(cfg *Config) (*storeMark, error) {
	dir := cfg.Embedded.StoreDir
	want := &storeMark{Version: storeVersion, Prefix: cfg.Prefix, Clustered: len(cfg.Embedded.Routes) > 0}
	bad := func(what, remedy string) (*storeMark, error) {
		return nil, Problem{"embedded.store_dir", dir + " " + what, remedy}
	}
	text, err := os.ReadFile(filepath.Join(dir, storeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return want, nil
	}
	var m storeMark
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	switch {
	case err != nil:
		return bad("can't be read: "+err.Error(), "restore it from a copy, or move it away to begin anew: nothing was changed in it")
	case m.Version != storeVersion:
		return bad(fmt.Sprintf("has version %d, this program reads %d", m.Version, storeVersion), "run the program that wrote it, or name another directory")
	case m.Prefix != want.Prefix:
		return bad(fmt.Sprintf("is the store of %q, this is %q", m.Prefix, want.Prefix), "name the directory of this deployment")
	case m.Clustered != want.Clustered:
		return bad("was written by "+servers(m.Clustered)+" and can't be read by "+servers(want.Clustered), "name an empty directory; docs/cluster.md says how policy and references go over")
	}
	want.Documents = m.Documents
	return want, nil
}

func servers(clustered bool) string {
	if clustered {
		return "one of several servers"
	}
	return "a server alone"
}

// write marks the directory.
func (m *storeMark) write(dir string) error {
	text, err := json.Marshal(m)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("mark the store: %w", err)
	}
	path := filepath.Join(dir, storeFile)
	err = os.WriteFile(path+".new", append(text, '\n'), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("mark the store: %w", err)
	}
	return nil
}

package control

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/warmpath/warmpath/control/discovery"
)

// Two services with one state file would each overwrite what the other saved. So
// a service holds an advisory lock (flock) on <state_file>.lock while it lives.
// The kernel gives it up with the process, however that ends: a lock file that
// was left behind stops nobody. What the file says is for people.

const lockSuffix = ".lock"

// errLocked says that another process holds a file's lock.
var errLocked = errors.New("locked by another process")

// lockState takes the lock of a state file until release, which may be called
// again. A folder that can't be written or a file system without locks is no
// reason not to serve: the log says so.
func lockState(stateFile string, log *slog.Logger) (release func(), err error) {
	if stateFile == "" {
		return func() {}, nil
	}
	path := stateFile + lockSuffix
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		log.Warn("state file not locked, a second service would go unnoticed", "file", path, "err", err)
		return func() {}, nil
	}
	release = sync.OnceFunc(func() { _ = f.Close() })
	switch err = lockFile(f); {
	case errors.Is(err, errLocked):
		holder, _ := io.ReadAll(io.LimitReader(f, 256))
		release()
		who := strings.TrimSpace(string(holder))
		if who == "" {
			who = "another process"
		}
		return nil, discovery.Problem{
			Source: "config", Field: "state_file",
			What:   fmt.Sprintf("%s is in use by %s, and each would overwrite what the other saves", stateFile, who),
			Remedy: "end that control service, or give this one a state file of its own",
		}
	case err != nil:
		log.Warn("state file not locked, a second service would go unnoticed", "file", path, "err", err)
		return release, nil
	}
	host, err := os.Hostname()
	if err != nil {
		host = "this host"
	}
	if err = f.Truncate(0); err == nil {
		_, err = fmt.Fprintf(f, "process %d on %s\n", os.Getpid(), host)
	}
	if err != nil {
		log.Warn("who locks the state file isn't written", "file", path, "err", err)
	}
	return release, nil
}

package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// tool is one binary that a cluster needs.
type tool struct {
	name, pkg, flags string
}

// tools of this Kubernetes version. The flags are those of its own releases:
// clients read the version.
func tools(version string) []tool {
	const v = "k8s.io/component-base/version."
	part := strings.SplitN(version, ".", 3)
	return []tool{
		{"etcd", "go.etcd.io/etcd/server/v3", "-s -w"},
		{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", fmt.Sprintf("-s -w -X %sgitVersion=v%s -X %sgitMajor=%s -X %sgitMinor=%s", v, version, v, part[0], v, part[1])},
	}
}

// Build returns the folder with the binaries, after building those that are
// missing. That takes some 7 minutes of one core, once for each version.
func Build(ctx context.Context, say func(format string, args ...any)) (dir string, err error) {
	_, file, _, _ := runtime.Caller(0)
	source := filepath.Join(filepath.Dir(file), "tools")
	goCommand := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = source
		return cmd
	}
	out, err := goCommand("list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes").Output()
	if err != nil {
		return "", fmt.Errorf("read the version of k8s.io/kubernetes in %s: %w", source, err)
	}
	version := strings.TrimPrefix(strings.TrimSpace(string(out)), "v")
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(cache, "warmpath", "kubernetes", version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, t := range tools(version) {
		path := filepath.Join(dir, t.name)
		if _, err := os.Stat(path); err == nil {
			continue
		}
		say("building %s %s into %s", t.name, version, dir)
		// To another name first: a build that is cut off leaves nothing behind.
		next := fmt.Sprintf("%s.%d", path, os.Getpid())
		if out, err := goCommand("build", "-trimpath", "-buildvcs=false", "-ldflags="+t.flags, "-o", next, t.pkg).CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", t.name, err, out)
		}
		if err := os.Rename(next, path); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// ModuleDir returns the folder of a module that is no dependency, from the
// module proxy.
func ModuleDir(ctx context.Context, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = os.TempDir()
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("download %s: %w: %s", module, err, out)
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(out, &found); err != nil {
		return "", fmt.Errorf("download %s: %w", module, err)
	}
	return found.Dir, nil
}

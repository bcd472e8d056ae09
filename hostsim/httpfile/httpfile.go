// Package httpfile reads requests and responses written down as text, in the
// form that editors know as .http files:
//
//	### a follow-up, with a comment
//	# lines before the request line may be comments
//	POST http://llm.example.com/v1/chat/completions
//	Content-Type: application/json
//
//	{"model": "m"}
//
//	### the same, its body in another file
//	POST /v1/chat/completions
//	Host: llm.example.com
//
//	< body.json
//
// A line that begins with ### separates messages and may name the next one. The
// first line is METHOD TARGET [HTTP/version], or for a response
// HTTP/version STATUS [reason] or STATUS; fields follow, then an empty line, then
// the body up to the next separator, without the blank lines before it. A body
// that is one line "< path" stands for that file's bytes, relative to the folder
// that the caller names. "> trailer-name: value" lines at the end of a body are
// trailers.
package httpfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Field is a header or trailer field, the name as it was written.
type Field struct{ Name, Value string }

// Message is a request or a response.
type Message struct {
	Name string // what follows ###
	Line int    // of the first line of it, from 1

	Method, Target, Host string // requests; Host is the URL's or the Host field's
	Status               int    // responses

	Fields   []Field // without Host
	Body     []byte
	Trailers []Field
}

// ErrFormat is wrapped by every error about what a file says.
var ErrFormat = errors.New("not a .http file")

// Read reads the messages of a file; path "-" is not special. kind is what it
// should hold: see ParseRequests and ParseResponses.
func Read(path string, parse func(text, dir string) ([]Message, error)) ([]Message, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	all, err := parse(string(text), filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("%s:%w", path, err)
	}
	return all, nil
}

// ParseRequests reads requests; bodies in files are taken from dir. Errors begin
// with the line.
func ParseRequests(text, dir string) ([]Message, error) { return parse(text, dir, requestLine) }

// ParseResponses reads responses.
func ParseResponses(text, dir string) ([]Message, error) { return parse(text, dir, statusLine) }

func parse(text, dir string, first func(m *Message, line string) error) ([]Message, error) {
	text = strings.TrimPrefix(text, "\ufeff")
	lines := strings.Split(text, "\n")
	var all []Message
	name, at := "", 0
	for at < len(lines) {
		end := at
		for end < len(lines) && !strings.HasPrefix(lines[end], "###") {
			end++
		}
		m, err := message(lines[at:end], at+1, dir, first)
		if err != nil {
			return nil, err
		}
		if m != nil {
			m.Name = name
			all = append(all, *m)
		}
		if end < len(lines) {
			name = strings.TrimSpace(strings.TrimLeft(lines[end], "#"))
		}
		at = end + 1
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("1: %w: it holds no message (the first line of one is POST /path, or HTTP/1.1 200)", ErrFormat)
	}
	return all, nil
}

// message reads what stands between two separators; nil if only comments do.
func message(lines []string, number int, dir string, first func(*Message, string) error) (*Message, error) {
	for len(lines) > 0 && skipped(lines[0]) {
		lines, number = lines[1:], number+1
	}
	if len(lines) == 0 {
		return nil, nil
	}
	m := &Message{Line: number}
	if err := first(m, strings.TrimSpace(lines[0])); err != nil {
		return nil, fmt.Errorf("%d: %w: %w", number, ErrFormat, err)
	}
	lines, number = lines[1:], number+1
	for len(lines) > 0 {
		line := strings.TrimRight(lines[0], "\r")
		lines, number = lines[1:], number+1
		if strings.TrimSpace(line) == "" {
			break
		}
		f, err := field(line)
		if err != nil {
			return nil, fmt.Errorf("%d: %w: %w", number-1, ErrFormat, err)
		}
		if strings.EqualFold(f.Name, "host") {
			m.Host = f.Value
		} else {
			m.Fields = append(m.Fields, f)
		}
	}
	return m, m.readBody(lines, number, dir)
}

func skipped(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "//")
}

// field reads "name: value"; names may begin with a colon (pseudo headers).
func field(line string) (Field, error) {
	colon := strings.IndexByte(line[1:], ':') + 1
	if colon < 1 || strings.ContainsAny(line[:colon], " \t") {
		return Field{}, fmt.Errorf("%q is no field (want name: value; an empty line ends the fields)", line)
	}
	return Field{line[:colon], strings.TrimSpace(line[colon+1:])}, nil
}

func (m *Message) readBody(lines []string, number int, dir string) error {
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	cut := len(lines)
	for cut > 0 && strings.HasPrefix(lines[cut-1], "> ") {
		cut--
	}
	for i, line := range lines[cut:] {
		line = strings.TrimSpace(line[2:])
		if line == "" {
			return fmt.Errorf("%d: %w: an empty trailer", number+cut+i, ErrFormat)
		}
		f, err := field(line)
		if err != nil {
			return fmt.Errorf("%d: %w: trailer %w", number+cut+i, ErrFormat, err)
		}
		m.Trailers = append(m.Trailers, f)
	}
	lines = lines[:cut]
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	if len(lines) == 0 {
		return nil
	}
	if path, ok := strings.CutPrefix(lines[0], "< "); ok && len(lines) == 1 {
		path = strings.TrimSpace(path)
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("%d: body: %w", number, err)
		}
		m.Body = body
		return nil
	}
	m.Body = []byte(strings.Join(lines, "\n"))
	return nil
}

func requestLine(m *Message, line string) error {
	words := strings.Fields(line)
	if len(words) == 3 && strings.HasPrefix(words[2], "HTTP/") {
		words = words[:2]
	}
	if len(words) == 1 && (strings.HasPrefix(words[0], "/") || strings.Contains(words[0], "://")) {
		words = []string{"GET", words[0]}
	}
	if len(words) != 2 || strings.Trim(words[0], "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" {
		return fmt.Errorf("%q is no request line (want POST /path)", line)
	}
	m.Method, m.Target = words[0], words[1]
	if _, rest, ok := strings.Cut(m.Target, "://"); ok {
		host, path, _ := strings.Cut(rest, "/")
		m.Host, m.Target = host, "/"+path
	}
	if !strings.HasPrefix(m.Target, "/") && m.Target != "*" {
		return fmt.Errorf("target %q begins neither with / nor with http://", m.Target)
	}
	return nil
}

func statusLine(m *Message, line string) error {
	words := strings.Fields(line)
	if len(words) > 0 && strings.HasPrefix(words[0], "HTTP/") {
		words = words[1:]
	}
	if len(words) == 0 {
		return fmt.Errorf("%q is no status line (want HTTP/1.1 200 OK)", line)
	}
	code, err := strconv.Atoi(words[0])
	if err != nil || code < 100 || code > 599 {
		return fmt.Errorf("%q is no status line (want HTTP/1.1 200 OK)", line)
	}
	m.Status = code
	return nil
}

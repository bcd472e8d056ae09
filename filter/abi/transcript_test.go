package abi_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestEveryHostCallCrossesIntoTheHostAndBack and
// TestEveryCallbackCrossesIntoTheModuleAndBack are transcripts: what crossed
// the boundary, in the order in which it did. Commands:
//
//	answer call=NAME [status=N] [data="..."] [id=N] [value=N]   what the host says from now on
//	run EXERCISE                                              a host call by the guest
//	call EXPORT ARGUMENTS...                                    a callback by the host
func TestEveryHostCallCrossesIntoTheHostAndBack(t *testing.T) {
	seen := transcript(t, "testdata/hostcalls_fast", "testdata/hostcalls_sdk")
	for name := range hostCalls {
		if !seen[name] {
			t.Errorf("no transcript makes the host call %s", name)
		}
	}
}

func TestEveryCallbackCrossesIntoTheModuleAndBack(t *testing.T) {
	seen := transcript(t, "testdata/callbacks")
	for name := range newRecorder(t, guestWasm).mod.ExportedFunctionDefinitions() {
		if strings.HasPrefix(name, "proxy_") && !seen[name] {
			t.Errorf("no transcript makes the callback %s", name)
		}
	}
}

// sourceLine hides line numbers of the guest's source.
var sourceLine = regexp.MustCompile(`\.go:\d+`)

// transcript runs a file and returns the names of host calls and callbacks in
// it.
func transcript(t *testing.T, paths ...string) map[string]bool {
	seen := map[string]bool{}
	r := newRecorder(t, guestWasm)
	r.start(t)
	for _, path := range paths {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "answer":
				var name string
				var a answer
				d.ScanArgs(t, "call", &name)
				d.MaybeScanArgs(t, "status", &a.status)
				d.MaybeScanArgs(t, "id", &a.id)
				d.MaybeScanArgs(t, "value", &a.value)
				if d.Input != "" {
					data, err := strconv.Unquote(`"` + d.Input + `"`)
					if err != nil {
						d.Fatalf(t, "data %s: %v", d.Input, err)
					}
					a.data = data
				}
				if _, ok := hostCalls[name]; !ok {
					d.Fatalf(t, "no host call %s", name)
				}
				r.answers[name] = a
				return ""
			case "run":
				var words []string
				for _, a := range d.CmdArgs {
					words = append(words, a.Key)
				}
				result := r.run(t, strings.Join(words, " "))
				calls := r.take()
				for _, line := range calls {
					seen[line[:strings.IndexByte(line, '(')]] = true
				}
				return strings.Join(append(calls[:len(calls)-1], "= "+result), "\n")
			case "call":
				export := d.CmdArgs[0].Key
				seen[export] = true
				var arguments []uint64
				for _, a := range d.CmdArgs[1:] {
					n, err := strconv.ParseInt(a.Key, 10, 64)
					if err != nil {
						d.Fatalf(t, "argument %s: %v", a.Key, err)
					}
					arguments = append(arguments, uint64(n))
				}
				r.take()
				results := r.call(t, export, arguments...)
				lines := slices.Clone(r.take())
				for i, line := range lines {
					lines[i] = sourceLine.ReplaceAllString(line, ".go:N")
				}
				if export == "proxy_on_memory_allocate" {
					results[0] = min(results[0], 1) // an address: there or not
				}
				if len(results) > 0 {
					lines = append(lines, fmt.Sprintf("= %d", results[0]))
				}
				return strings.Join(lines, "\n")
			}
			d.Fatalf(t, "no command %s", d.Cmd)
			return ""
		})
	}
	return seen
}

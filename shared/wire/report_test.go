package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAMadeCopyIsToldApart from a client's request, and changes nothing else of the record.
func TestAMadeCopyIsToldApart(t *testing.T) {
	plain, marked := exampleDispatch, exampleDispatch
	marked.Copy = true
	a, b := AppendDispatch(nil, &plain, exampleCPs), AppendDispatch(nil, &marked, exampleCPs)
	if a[26] != 0 || b[26] != 1 {
		t.Errorf("flags %d and %d", a[26], b[26])
	}
	b[26] = 0
	if diff := cmp.Diff(a, b); diff != "" {
		t.Error(diff)
	}
	b[26] = 1
	if err := ForEachReport(append(b, a...), func(r *Report) error {
		if r.Copy != marked.Copy {
			t.Errorf("copy %v, want %v", r.Copy, marked.Copy)
		}
		marked.Copy = false
		return nil
	}); err != nil {
		t.Error(err)
	}
}

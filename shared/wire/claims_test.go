package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var exampleClaims = []CopyClaim{{Fingerprint: 0xfedcba9876543210, UnixNanos: 1_800_000_000_000_000_000, Ref: 3}}

func TestClaimsComeBackAsTheyWere(t *testing.T) {
	many := make([]CopyClaim, MaxCopyClaims)
	for i := range many {
		many[i] = CopyClaim{Fingerprint: uint64(i) << 40, UnixNanos: int64(i), Ref: uint16(i + 1)}
	}
	for _, claims := range [][]CopyClaim{nil, exampleClaims, many} {
		got, err := DecodeCopyClaims(AppendCopyClaims(nil, claims), nil)
		if diff := cmp.Diff(claims, got); err != nil || diff != "" {
			t.Error(err, diff)
		}
	}
}

func TestDamagedClaimsAreRefusedWithTheirPlace(t *testing.T) {
	good := AppendCopyClaims(nil, exampleClaims)
	change := func(at int) []byte {
		b := append([]byte(nil), good...)
		b[at] ^= 0x40
		return b
	}
	for want, b := range map[string][]byte{
		"header cut short":     good[:7],
		"wrong magic":          change(0),
		"unknown wire version": change(4),
		"claim cut short":      good[:len(good)-1],
		"more than 64":         AppendCopyClaims(nil, make([]CopyClaim, MaxCopyClaims+1)),
	} {
		if got, err := DecodeCopyClaims(b, nil); err == nil || !strings.Contains(err.Error(), want) || got != nil {
			t.Errorf("%s: %v, %v", want, got, err)
		}
	}
}

func TestAClaimEndsByItself(t *testing.T) {
	c := CopyClaim{UnixNanos: int64(time.Hour)}
	for after, want := range map[time.Duration]bool{
		0: true, CopyClaimTime - 1: true, CopyClaimTime: false, time.Hour: false, 1 - CopyClaimTime: true, -CopyClaimTime: false,
	} {
		if got := c.Live(int64(time.Hour + after)); got != want {
			t.Errorf("after %v: %v", after, got)
		}
	}
}

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

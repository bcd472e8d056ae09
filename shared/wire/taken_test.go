package wire

import "testing"

var (
	exampleTaken = Taken{Queue: 7, Nonce: 0x1122334455667788, Sequence: 9, Courier: 0xabcdef}
	exampleNews  = News{Slot: 2, Nonce: 0x1122334455667788, Sequence: 10}
)

func TestTakenSurvivesTheTrip(t *testing.T) {
	b := guard(t, func(b []byte) []byte { return AppendTaken(b, &exampleTaken) })
	if got, err := DecodeTaken(b); err != nil || got != exampleTaken || len(b) != TakenBytes {
		t.Errorf("%+v, %v", got, err)
	}
	wantFault(t, TakenBytes-1, "length", func() error { _, err := DecodeTaken(b[:TakenBytes-1]); return err })
	b[0]++
	wantFault(t, 0, "magic", func() error { _, err := DecodeTaken(b); return err })
}

func TestNewsIsToldFromOtherMessages(t *testing.T) {
	b := guard(t, func(b []byte) []byte { return AppendNews(b, &exampleNews) })
	if got, ok := DecodeNews(b); !ok || got != exampleNews || len(b) != NewsBytes {
		t.Errorf("%+v, %v", got, ok)
	}
	b[5] = 0xff // no such slot
	for _, other := range [][]byte{nil, []byte("wait"), make([]byte, 8), make([]byte, NewsBytes), b} {
		if n, ok := DecodeNews(other); ok {
			t.Errorf("%q is %+v", other, n)
		}
	}
}

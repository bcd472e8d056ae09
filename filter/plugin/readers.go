package plugin

import "github.com/warmpath/warmpath/filter/usage"

// keptReaders bounds the idle usage readers of a VM, about 9 KB each.
const keptReaders = 64

// readers lends usage readers to responses. One in use belongs to its stream.
type readers struct {
	idle []*usage.Reader
}

func (r *readers) take() *usage.Reader {
	n := len(r.idle)
	if n == 0 {
		return new(usage.Reader)
	}
	reader := r.idle[n-1]
	r.idle = r.idle[:n-1]
	return reader
}

func (r *readers) give(reader *usage.Reader) {
	if len(r.idle) < keptReaders {
		r.idle = append(r.idle, reader)
	}
}

package plugin

import "strconv"

// words are a line that is written word by word. Its functions are not inlined: each word then costs
// the module a call, and not all that append does.
type words []byte

//go:noinline
func (w *words) add(text string) { *w = append(*w, text...) }

// whole adds a whole number behind its name.
//
//go:noinline
func (w *words) whole(name string, n int64) { *w = strconv.AppendInt(append(*w, name...), n, 10) }

// part adds a number to four decimals behind its name.
//
//go:noinline
func (w *words) part(name string, x float64) {
	*w = strconv.AppendFloat(append(*w, name...), x, 'f', 4, 64)
}

// some is part for a number that is mostly 0, and then left out.
//
//go:noinline
func (w *words) some(name string, x float64) {
	if x != 0 {
		w.part(name, x)
	}
}

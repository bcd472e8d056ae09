package main

import (
	"bytes"
	"fmt"
	"slices"
)

// The first property codes; every further one is a combining class, ascending.
const (
	inert       = iota // starter, NFC_Quick_Check=Yes
	decomposes         // starter, NFC_Quick_Check=No
	maybe              // starter, NFC_Quick_Check=Maybe
	nonstarters        // first code of those with a combining class, three for each
)

func (d *database) writeNFC(b *bytes.Buffer) error {
	no := map[uint32]bool{}
	perhaps := map[uint32]bool{}
	for _, m := range d.mappings {
		if !m.composes {
			no[m.code] = true
			continue
		}
		perhaps[m.second] = true
	}
	for c := uint32(0x1161); c <= 0x1175; c++ { // Hangul vowels
		perhaps[c] = true
	}
	for c := uint32(0x11A8); c <= 0x11C2; c++ { // Hangul finals
		perhaps[c] = true
	}

	var classes []uint8
	for _, class := range d.class {
		if class != 0 && !slices.Contains(classes, class) {
			classes = append(classes, class)
		}
	}
	slices.Sort(classes)
	codes := make([]uint8, len(d.class))
	limit := 0
	for c := range codes {
		quick := uint8(inert)
		switch {
		case no[uint32(c)]:
			quick = decomposes
		case perhaps[uint32(c)]:
			quick = maybe
		}
		codes[c] = quick
		if class := d.class[c]; class != 0 {
			codes[c] = nonstarters + 3*uint8(slices.Index(classes, class)) + quick
		}
		if codes[c] != inert {
			limit = c + 1
		}
	}
	if nonstarters+3*len(classes) > 256 {
		return fmt.Errorf("%d combining classes do not fit a byte", len(classes))
	}
	limit = (limit + blockSize - 1) &^ (blockSize - 1)
	index, blocks, high, err := split(codes, limit)
	if err != nil {
		return fmt.Errorf("NFC: %w", err)
	}

	// Code points and mappings inside the BMP take 6 bytes each, the compatibility
	// ideographs 4, and the few others 12.
	var keys, firsts, seconds, ideographs, wide []uint32
	for _, m := range d.mappings {
		switch {
		case m.code >= compat && m.code < compatEnd:
			if m.second != 0 || m.code != compat+uint32(len(ideographs)) {
				return fmt.Errorf("U+%04X breaks the run of compatibility ideographs", m.code)
			}
			ideographs = append(ideographs, m.first)
		case max(m.code, m.first, m.second) < bmp:
			keys, firsts, seconds = append(keys, m.code), append(firsts, m.first), append(seconds, m.second)
		default:
			wide = append(wide, m.code, m.first, m.second)
		}
	}
	var composed []uint32
	for i, key := range keys {
		if !no[key] {
			composed = append(composed, uint32(i))
		}
	}
	slices.SortFunc(composed, func(a, b uint32) int {
		return int(firsts[a]<<16|seconds[a]) - int(firsts[b]<<16|seconds[b])
	})

	fmt.Fprintf(b, "const (\nnfcLimit = %#x // all code points are inert from here on\nnfcHigh = %d // block of the first supplementary code point\nnfcCodes = %d // number of property codes\n)\n\n", limit, high, nonstarters+3*len(classes))
	writeBytes(b, "nfcIndex gives the block of code point r at r>>6, counted from nfcHigh above the BMP.", "nfcIndex", index)
	writeBytes(b, "nfcBlocks holds the property code of 64 code points a block.", "nfcBlocks", blocks)
	writeWords(b, "nfcFrom are the code points of the BMP that decompose within it, ascending.", "nfcFrom", "uint16", keys)
	writeWords(b, "nfcFirst is the first half of each one's mapping.", "nfcFirst", "uint16", firsts)
	writeWords(b, "nfcSecond is the second half, 0 for a singleton.", "nfcSecond", "uint16", seconds)
	writeWords(b, "nfcCompose indexes those that compose again, ascending by mapping.", "nfcCompose", "uint16", composed)
	writeWords(b, "nfcCompat maps the compatibility ideographs from U+2F800 on.", "nfcCompat", "uint32", ideographs)
	writeWords(b, "nfcWide holds what is left: code point, first and second half, ascending.", "nfcWide", "uint32", wide)
	return nil
}

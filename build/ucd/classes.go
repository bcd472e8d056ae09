package main

import (
	"bytes"
	"fmt"
	"os"
)

// classBit numbers the classes as package ucd's Class bits; 8 is no class.
func (d *database) classBit(code int) uint8 {
	switch code {
	case '\t', '\n', '\v', '\f', '\r', 0x85: // White_Space beside the separators
		return 5
	}
	category := d.category[code]
	switch category {
	case "Lu", "Lt":
		return 0
	case "Ll":
		return 1
	case "Lm", "Lo":
		return 2
	case "":
		return 8
	}
	switch category[0] {
	case 'M':
		return 3
	case 'N':
		return 4
	case 'Z':
		return 5
	case 'P':
		return 6
	case 'S':
		return 7
	}
	return 8
}

// writeClasses packs two code points a byte. Above the last ideograph only
// variation selectors have a class, and Of knows those by range.
func (d *database) writeClasses(b *bytes.Buffer) {
	const selectors, selectorsEnd = 0xE0100, 0xE01F0
	bits := make([]uint8, len(d.category))
	limit := 0
	for c := range bits {
		bits[c] = d.classBit(c)
		if bits[c] == 8 {
			continue
		}
		if c >= selectors {
			if c >= selectorsEnd || bits[c] != 3 {
				fmt.Fprintf(os.Stderr, "ucd: U+%04X has a class above the ideographs; teach Of about it\n", c)
				os.Exit(1)
			}
			continue
		}
		limit = c + 1
	}
	limit = (limit + blockSize - 1) &^ (blockSize - 1)
	index, blocks, high, err := split(bits, limit)
	if err != nil {
		fmt.Fprintln(os.Stderr, "ucd: classes:", err)
		os.Exit(1)
	}
	packed := make([]uint8, len(blocks)/2)
	for i, bit := range blocks {
		packed[i/2] |= bit << (i % 2 * 4)
	}
	fmt.Fprintf(b, "const (\nclassLimit = %#x // no class from here on, but for the variation selectors\nclassHigh = %d // block of the first supplementary code point\n)\n\n", limit, high)
	writeBytes(b, "classIndex gives the block of code point r at r>>6, counted from classHigh above the BMP.", "classIndex", index)
	writeBytes(b, "classBlocks holds the number of the class bit of 64 code points in 32 bytes, the even one in the low half; 8 is no class.", "classBlocks", packed)
}

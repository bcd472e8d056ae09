package main

import (
	"math/rand/v2"
	"strings"
	"unicode"
	"unicode/utf8"
)

// generatorVersion names the texts; raise it when generate changes.
const generatorVersion = 1

// generator makes hostile strings, the same ones for the same vocabulary on
// every machine. Each kind aims at one thing in which tokenizers differ.
type generator struct {
	rng    *rand.Rand
	added  []string // added tokens of the vocabulary
	pieces []string // what its ordinary tokens stand for, as bytes
}

// generate returns n strings (bytes: some are broken UTF-8), and after them
// strings that hold every code point once.
func generate(n int, added, pieces []string) [][]byte {
	g := &generator{rng: rand.New(rand.NewPCG(20261129, generatorVersion)), added: added, pieces: pieces}
	kinds := []struct {
		weight int
		make   func() string
	}{
		{14, g.boundaries},
		{12, g.scripts},
		{10, g.spaces},
		{8, g.digits},
		{12, g.code},
		{6, g.emoji},
		{10, g.combining},
		{4, g.jamo},
		{6, g.contractions},
		{4, g.lineEnds},
		{9, g.addedTokens},
		{4, g.unassigned},
		{5, g.broken},
		{12, g.tokens},
		{1, g.long},
		{6, g.mixture},
	}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	out := make([][]byte, 0, n+30_000)
	out = append(out, nil)
	for len(out) < n {
		at := g.rng.IntN(total)
		for _, k := range kinds {
			if at -= k.weight; at < 0 {
				out = append(out, []byte(k.make()))
				break
			}
		}
	}
	return append(out, everyCodePoint()...)
}

// everyCodePoint puts each code point (surrogates are none) among neighbours
// that show its class: a letter, a space, a digit and itself again; and once in
// a run with the ones that follow it.
func everyCodePoint() [][]byte {
	var out [][]byte
	var alone, run strings.Builder
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		// Planes 4 to 13 are unassigned throughout, 15 and 16 private use: a
		// sample of them.
		if r >= 0x40000 && r%97 != 0 && r>>8 != 0xE00 && r>>8 != 0xE01 {
			continue
		}
		alone.WriteString("a")
		alone.WriteRune(r)
		alone.WriteString("B ")
		alone.WriteRune(r)
		alone.WriteRune(r)
		alone.WriteString("1")
		run.WriteRune(r)
		if alone.Len() > 400 {
			out = append(out, []byte(alone.String()), []byte(run.String()))
			alone.Reset()
			run.Reset()
		}
	}
	return append(out, []byte(alone.String()), []byte(run.String()))
}

func (g *generator) one(from []string) string  { return from[g.rng.IntN(len(from))] }
func (g *generator) between(low, high int) int { return low + g.rng.IntN(high-low+1) }
func (g *generator) in(low, high rune) rune {
	return low + rune(g.rng.IntN(int(high-low+1)))
}

// repeat joins low to high results of f.
func (g *generator) repeat(low, high int, f func() string) string {
	var b strings.Builder
	for range g.between(low, high) {
		b.WriteString(f())
	}
	return b.String()
}

// alphabet has at least one rune of every general category and every rune that
// a published pattern names: whatever a pattern can decide on stands here.
var alphabet = strings.Split("a b z A Z é É ß ǅ ʰ ª º ا ب 中 文 あ ア 龥 龦 々 ー ゟ ゠ ́ ̂ ि ा ⃝ ͏ 0 1 9 ٣ ५ Ⅷ ² ½ 〇 _ - – ( ) [ ] « » “ ” ‘ ’ ' ! \" # / \\ . , : ; ? @ & % * { } | ~ ` ^ + = < > $ € ¢ ∑ ± ¦ © ° ← 😀 ♥ 　 \u200b \u200d \u00ad \ufeff \ufe0f \ufffd \U000e0001 \ue000 \U0010fffd \u0378 \uffff ſ K Å ʼ s S t T re RE ve m ll d D ''", " ")

var whitespace = []string{" ", " ", " ", "  ", "\n", "\r", "\r\n", "\t", "\v", "\f", "\u0085", "\u00a0", "\u1680", "\u2000", "\u2003", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\x1c", "\x1d", "\x1e", "\x1f", "\u180e", "\u200b", "\ufeff"}

// boundaries are short strings over the alphabet: nearly every pair and many
// triples of classes meet.
func (g *generator) boundaries() string {
	return g.repeat(1, 12, func() string {
		switch g.rng.IntN(4) {
		case 0:
			return g.one(whitespace)
		case 1:
			return g.one(alphabet) + g.one(alphabet)
		default:
			return g.one(alphabet)
		}
	})
}

// blocks are ranges of scripts that people write in.
var blocks = [][2]rune{
	{'a', 'z'},
	{'A', 'Z'},
	{0xC0, 0x17F},
	{0x180, 0x24F},
	{0x370, 0x3FF},
	{0x400, 0x4FF},
	{0x531, 0x586},
	{0x5D0, 0x5EA},
	{0x620, 0x64A},
	{0x671, 0x6D3},
	{0x904, 0x939},
	{0x93E, 0x94D},
	{0x985, 0x9CD},
	{0xB85, 0xBCD},
	{0xE01, 0xE3A},
	{0xE40, 0xE4E},
	{0x10A0, 0x10FF},
	{0x1200, 0x1248},
	{0x13A0, 0x13F4},
	{0x1780, 0x17D2},
	{0x1E00, 0x1EFF},
	{0x1F00, 0x1FFF},
	{0x3041, 0x3096},
	{0x30A1, 0x30FA},
	{0x4E00, 0x9FFF},
	{0x3400, 0x4DBF},
	{0xAC00, 0xD7A3},
	{0xFF21, 0xFF5A},
	{0x10400, 0x1044F},
	{0x1D400, 0x1D7FF},
	{0x20000, 0x2A6DF},
	{0x1E900, 0x1E943},
}

func (g *generator) word() string {
	b := blocks[g.rng.IntN(len(blocks))]
	if g.rng.IntN(3) == 0 {
		b = blocks[0]
	}
	w := g.repeat(1, 9, func() string { return string(g.in(b[0], b[1])) })
	if g.rng.IntN(5) == 0 {
		first, size := utf8.DecodeRuneInString(w)
		w = string(unicode.ToUpper(first)) + w[size:]
	}
	return w
}

func (g *generator) scripts() string {
	return g.repeat(1, 12, func() string {
		return g.word() + g.one([]string{" ", " ", " ", "", ", ", ". ", "-", "\n", "'", "。", "、", "/", "_"})
	})
}

func (g *generator) spaces() string {
	return g.repeat(1, 5, func() string {
		run := g.repeat(1, 7, func() string { return g.one(whitespace) })
		if g.rng.IntN(3) == 0 {
			run = strings.Repeat(g.one(whitespace), g.between(1, 40))
		}
		return run + g.one([]string{"", "", "x", "Word", "1", "!", "中", "\u0301", "?!", g.one(alphabet)})
	})
}

var zeros = []rune{'0', '0', '0', '0', 0x660, 0x6F0, 0x966, 0x9E6, 0xE50, 0xFF10, 0x1D7CE, 0x1D7D8, 0x1E950, 0x1FBF0}

func (g *generator) digits() string {
	return g.repeat(1, 6, func() string {
		zero := zeros[g.rng.IntN(len(zeros))]
		run := g.repeat(1, 11, func() string { return string(zero + rune(g.rng.IntN(10))) })
		return run + g.one([]string{"", " ", ".", ",", "e", "px", "%", "²", "½", "Ⅷ", "〇", "一", "-", "/", ":", "\n", "_", "\u0301"})
	})
}

var codeParts = strings.Split("func|return|if (|) {|}|def |self.|==|!=|=>|->|::|<=|>>|&&|\\|\\||/*|*/|//|#include <|>|\"|'|`|\\n|\\t|\\\\|0x1F|1_000|3.14e-10|i++|[i]|{{|}}|<div class=\"|</div>|&nbsp;|https://example.com/a?b=c&d=%20|camelCase|PascalCaseName|snake_case_name|SCREAMING_SNAKE|HTTPServer2|getURLForX|x1|__init__|$var|@Override|#!/bin/sh|;|,|:|...|()|[]|lambda x: |SELECT * FROM |NULL|don't|it's|\u03bb|// 注释|TODO: |~/|../|<?php|?>|=\\|>|\\u00e9|\\x00|\"\"\"|'''", "|")

func (g *generator) code() string {
	return g.repeat(2, 24, func() string {
		switch g.rng.IntN(8) {
		case 0:
			return g.one([]string{"\n", "\r\n", "\n\n", " \n", "\t\n"}) + strings.Repeat(g.one([]string{" ", "\t", "  "}), g.rng.IntN(9))
		case 1:
			return " "
		case 2:
			return g.repeat(1, 8, func() string { return g.one([]string{"a", "B", "_", "1", "x", "Id", "ERR", "$", "-"}) })
		default:
			return g.one(codeParts)
		}
	})
}

func (g *generator) emoji() string {
	people := []rune{0x1F468, 0x1F469, 0x1F9D1, 0x1F466, 0x1F44D, 0x1F937, 0x2764, 0x1F3F3, 0x1F3F4, 0x270A}
	return g.repeat(1, 8, func() string {
		switch g.rng.IntN(7) {
		case 0: // family or profession
			return g.repeat(1, 4, func() string {
				return string(people[g.rng.IntN(len(people))]) + g.one([]string{"", "\U0001F3FB", "\U0001F3FF"}) + "\u200d"
			}) + g.one([]string{"\u2642\ufe0f", "\U0001F4BB", "\U0001F308", ""})
		case 1: // flag
			return string([]rune{g.in(0x1F1E6, 0x1F1FF), g.in(0x1F1E6, 0x1F1FF)})
		case 2: // keycap
			return g.one([]string{"1", "#", "*", "9"}) + "\ufe0f\u20e3"
		case 3: // tag sequence
			return "\U0001F3F4" + g.repeat(2, 5, func() string { return string(g.in(0xE0061, 0xE007A)) }) + "\U000E007F"
		case 4:
			return g.one([]string{" ", "a", "!", "\n", "🙂🙂", "。"})
		default:
			return string(g.in(0x1F300, 0x1FAFF)) + g.one([]string{"", "", "\ufe0f", "\ufe0e"})
		}
	})
}

// combining aims at NFC: marks out of order, singletons, compositions that are
// excluded, starters between marks, long runs.
func (g *generator) combining() string {
	bases := []string{"a", "e", "o", "u", "A", "E", "s", "d", "K", "Å", "Ω", "q", "ẛ", "क", "ড", "ক", "α", "ω", "Υ", "и", "あ", "か", "は", "가", "\u1100", "א", "ש", "ا", "ཀ", "𑄱", "𝅗", "\u0344", "\u0340", "\u0f73", "豈", "\U0002F800", "\u2126", "\u1fef", "ﬁ", "ǰ", "ΐ", "1", " ", "\u09c7", "\u0b47", "\u0dd9", "\u1025", "\u114b9", "\U00011347", "\U000105D2", "\U00011382", "\U000113C2"}
	marks := []rune{0x300, 0x301, 0x302, 0x303, 0x304, 0x306, 0x307, 0x308, 0x30A, 0x30C, 0x31B, 0x323, 0x327, 0x328, 0x331, 0x338, 0x342, 0x345, 0x34F, 0x5B0, 0x5BC, 0x5C1, 0x64B, 0x653, 0x654, 0x670, 0x93C, 0x94D, 0x9BC, 0x9BE, 0x9D7, 0xB3E, 0xDCF, 0xDCA, 0x102E, 0x3099, 0x309A, 0xF71, 0xF72, 0xF80, 0x11127, 0x1D165, 0x1D16E, 0x20D0, 0xFE20, 0x1133E, 0x307, 0x113BB, 0x113C9, 0x1E08F}
	return g.repeat(1, 8, func() string {
		most := 4
		if g.rng.IntN(40) == 0 {
			most = 60
		}
		s := g.one(bases)
		if g.rng.IntN(4) == 0 {
			s = string(g.in(0xC0, 0x1EF))
		}
		return s + g.repeat(0, most, func() string { return string(marks[g.rng.IntN(len(marks))]) }) + g.one([]string{"", "", "", " ", "x"})
	})
}

// jamo puts Hangul together and apart.
func (g *generator) jamo() string {
	return g.repeat(1, 10, func() string {
		switch g.rng.IntN(6) {
		case 0:
			return string([]rune{g.in(0x1100, 0x1112), g.in(0x1161, 0x1175)})
		case 1:
			return string([]rune{g.in(0x1100, 0x1112), g.in(0x1161, 0x1175), g.in(0x11A7, 0x11C2)})
		case 2:
			return string([]rune{0xAC00 + 28*rune(g.rng.IntN(399)), g.in(0x11A7, 0x11C3)})
		case 3:
			return string(g.in(0x1100, 0x11FF)) + g.one([]string{"", "\u0301"})
		case 4:
			return string(g.in(0xA960, 0xA97C)) + string(g.in(0xD7B0, 0xD7FB))
		default:
			return string(g.in(0xAC00, 0xD7A3)) + g.one([]string{"", " "})
		}
	})
}

func (g *generator) contractions() string {
	return g.repeat(1, 6, func() string {
		return g.one([]string{"I", "we", "It", "WE", "x", "1", "", " ", "é", "\n", "''", "中", "!"}) + g.one([]string{"'", "'", "'", "’", "ʼ", " '", "`"}) +
			g.one([]string{"s", "S", "t", "T", "re", "RE", "Re", "rE", "ve", "VE", "vE", "m", "M", "ll", "LL", "lL", "d", "D", "ſ", "l", "r", "v", "sS", "tt", "rex", "K", ""}) +
			g.one([]string{"", " ", "x", "X", "'", ".", "1", "\n"})
	})
}

func (g *generator) lineEnds() string {
	return g.repeat(2, 14, func() string {
		return g.one([]string{"\r", "\n", "\r\n", "\n\r", " ", "  ", "\t", "/", "!\n", "/\n/", ".\r\n", "a", "\u2028", "\u0085", "\v", "{\n", ")\r", "x \n", "?/\n\n"})
	})
}

// addedTokens stand alone, side by side, cut, in other cases, among spaces.
func (g *generator) addedTokens() string {
	if len(g.added) == 0 {
		return g.mixture()
	}
	return g.repeat(1, 7, func() string {
		t := g.one(g.added)
		switch g.rng.IntN(12) {
		case 0:
			t = t[:g.rng.IntN(len(t)+1)]
		case 1:
			t = t[g.rng.IntN(len(t)+1):]
		case 2:
			t = strings.ToUpper(t)
		case 3:
			at := g.rng.IntN(len(t) + 1)
			t = t[:at] + g.one(g.added) + t[at:]
		case 4:
			t = t + t
		}
		return g.one([]string{"", "", "", " ", "  ", "\n", "user\n", "x", "<", "é", "\u0301"}) + t +
			g.one([]string{"", "", "", " ", "\n", "\n\n", "system\nYou are.", "\u0301", ">", "|>", "'s"})
	})
}

func (g *generator) unassigned() string {
	return g.repeat(1, 8, func() string {
		switch g.rng.IntN(6) {
		case 0:
			return string(g.in(0xE000, 0xF8FF))
		case 1:
			return string(g.in(0xF0000, 0x10FFFF))
		case 2:
			return string(g.in(0xFDD0, 0xFDEF))
		case 3:
			return string(g.in(0x0, 0x1F)) + string(g.in(0x7F, 0x9F))
		case 4:
			return g.one([]string{"a", " ", "1", "."})
		default:
			return string(g.in(0x10000, 0x3FFFF))
		}
	})
}

// broken is bytes that are no UTF-8: cut, overlong, surrogates, strays.
func (g *generator) broken() string {
	return g.repeat(1, 8, func() string {
		whole := g.one([]string{"é", "中", "😀", "a", " ", "б", "\u0301", "\U0010ffff", "x ", "1"})
		switch g.rng.IntN(7) {
		case 0:
			return whole[:g.rng.IntN(len(whole)+1)]
		case 1:
			return whole[g.rng.IntN(len(whole)+1):]
		case 2:
			return string([]byte{byte(0x80 + g.rng.IntN(128))})
		case 3:
			return g.one([]string{"\xc0\x80", "\xe0\x80\xaf", "\xed\xa0\x80", "\xed\xbf\xbf\xed\xb0\x80", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xf0\x9f\x98", "\xe4\xb8", "\xff\xfe", "\xf0\x80\x80\x80", "\xe1\x80", "\xf1\x80\x80"})
		case 4:
			return string([]byte{byte(g.rng.IntN(256)), byte(g.rng.IntN(256)), byte(g.rng.IntN(256))})
		default:
			return whole
		}
	})
}

// tokens joins what ordinary tokens stand for, so that merges reach deep.
func (g *generator) tokens() string {
	return g.repeat(1, 10, func() string {
		t := g.one(g.pieces)
		if g.rng.IntN(6) == 0 && len(t) > 1 {
			t = t[:g.rng.IntN(len(t))]
		}
		return t
	})
}

// long are pieces that never end: what a caller may send to hurt.
func (g *generator) long() string {
	n := g.between(80, 1500)
	switch g.rng.IntN(9) {
	case 0:
		return strings.Repeat(g.one(alphabet), n)
	case 1:
		return strings.Repeat(g.word(), n/8)
	case 2:
		return g.repeat(n, n, func() string { return string(g.in('a', 'z')) })
	case 3:
		return g.repeat(n/2, n, func() string {
			return string("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[g.rng.IntN(64)])
		})
	case 4:
		return g.repeat(n/2, n, func() string { return string(g.in(0x4E00, 0x9FA5)) })
	case 5:
		return strings.Repeat(g.one(whitespace), n)
	case 6:
		return strings.Repeat("=-"[g.rng.IntN(2):][:1], n)
	case 7:
		return g.repeat(n, n, func() string { return g.one([]string{"a", "b"}) })
	default:
		return strings.Repeat("'s", n/2) + strings.Repeat("1", n)
	}
}

// mixture joins two or three of the other kinds.
func (g *generator) mixture() string {
	kinds := []func() string{g.boundaries, g.scripts, g.spaces, g.digits, g.code, g.emoji, g.combining, g.contractions, g.lineEnds, g.tokens}
	return g.repeat(2, 3, func() string { return kinds[g.rng.IntN(len(kinds))]() })
}

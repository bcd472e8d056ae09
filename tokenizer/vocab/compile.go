package vocab

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"strconv"

	"github.com/minio/highwayhash"

	"github.com/warmpath/warmpath/tokenizer/pretoken"
)

// Spec is a vocabulary before compilation, as a reader of some file format produces it.
type Spec struct {
	// Tokens are the bytes of the BPE tokens by id; an empty one is a hole.
	Tokens [][]byte
	// Merges are pairs of ids, the earliest first. Nil with ByRank set.
	Merges [][2]uint32
	// ByRank: any two neighbours whose bytes together are a token may merge, the token with the
	// lowest id first (tiktoken's rank files).
	ByRank bool
	// Whole: a piece that is a token is that token, whatever the merges say (ignore_merges).
	Whole bool
	// NFC: text is normalized to form C.
	NFC bool
	// PrefixSpace: a text between added tokens gets a space in front unless it has one.
	PrefixSpace bool
	// Kind is the pre-tokenizer.
	Kind pretoken.Kind
	// Added are the tokens that are cut out of the text before anything else.
	Added []AddedSpec
	// Before and After enclose a text that is encoded with special tokens: BOS and EOS.
	Before, After []uint32
}

// AddedSpec is an added token before compilation.
type AddedSpec struct {
	// ID is its id, Content its text.
	ID      uint32
	Content string
	// Normalized: it is looked for in normalized text, as Match.
	Normalized bool
	// Match is Content after normalization; only read with Normalized.
	Match string
	// Special, LStrip, RStrip, SingleWord: see the flags of Added.
	Special, LStrip, RStrip, SingleWord bool
}

// Compile returns the bytes of the .wpv file. The same Spec gives the same bytes.
//
// # Merging by bytes is merging by pairs
//
// A merge list names pairs of tokens; the file only knows for each token its bytes and its
// rank. Both give the same ids, for this reason. Call a token reproducible if merging its own
// bytes, alone, ends with it. BPE inside a span of text does not depend on what lies around
// it as long as no merge crosses the span's ends, because the order is given by rank and, for
// equal ranks, by position. So wherever a token T comes into being, its span has gone through
// exactly the steps of T alone; the last two tokens before T are always the same pair, and T's
// rank is the rank of that pair. Hence (1) a token that is not reproducible never comes into
// being: such tokens are left out of the table (with Whole they are kept apart, for whole
// pieces); (2) if two neighbours' bytes together are a reproducible T, their span is in T's
// last state but one, so they are T's pair. No order of the ranks is assumed, so hand-edited
// merge lists are covered too.
//
// # Characters that always merge first
//
// A multi-byte character c may be taken as one token from the start if nothing can touch its
// bytes before they have merged. What could is a token that crosses c's edge and contains a
// part of c; the first such token to come into being begins with an end of c or ends with a
// beginning of c. If all the merges that make c have lower ranks than every such token, c is
// complete before, wherever it stands: Safe. Most tokens that cross an edge have ASCII on its
// other side (a space and the beginning of an ideograph); characters that are safe but for
// those are safe where no neighbour is ASCII: SafeInside.
func (s *Spec) Compile() ([]byte, error) {
	c := compiler{spec: s, byBytes: make(map[string]uint32, len(s.Tokens))}
	if err := c.read(); err != nil {
		return nil, err
	}
	c.derive()
	c.number()
	return c.write()
}

const unranked = 1<<32 - 1

type compiler struct {
	spec    *Spec
	byBytes map[string]uint32     // id of bytes
	pairs   map[[2]uint32]merging // by ids
	ones    [256]uint32           // id of each byte
	rank    []uint32              // by id: rank of the last merge, unranked if not reproducible
	latest  []uint32              // by id: highest rank of all its merges
	merged  []uint32              // reproducible tokens of two bytes or more by rank: ids
	toIndex []uint32              // by id; nil if index = id
	toID    []uint32
}

type merging struct{ rank, id uint32 }

func (c *compiler) read() error {
	s := c.spec
	if len(s.Tokens) > MaxIndexes {
		return errors.New("compile vocabulary: " + strconv.Itoa(len(s.Tokens)) + " tokens, at most " + strconv.Itoa(MaxIndexes))
	}
	for i := range c.ones {
		c.ones[i] = None
	}
	for id, token := range s.Tokens {
		if len(token) == 0 {
			continue
		}
		if len(token) > MaxTokenBytes {
			return errors.New("compile vocabulary: token " + strconv.Itoa(id) + " is longer than " + strconv.Itoa(MaxTokenBytes) + " bytes")
		}
		if other, ok := c.byBytes[string(token)]; ok {
			return errors.New("compile vocabulary: tokens " + strconv.Itoa(int(other)) + " and " + strconv.Itoa(id) + " are the same bytes")
		}
		c.byBytes[string(token)] = uint32(id)
		if len(token) == 1 {
			c.ones[token[0]] = uint32(id)
		}
	}
	for b, id := range c.ones {
		if id == None && !neverInUTF8(byte(b)) {
			return errors.New("compile vocabulary: no token for byte 0x" + strconv.FormatUint(uint64(b), 16) +
				"; texts with it have no exact tokens")
		}
	}
	if s.ByRank {
		return nil
	}
	c.pairs = make(map[[2]uint32]merging, len(s.Merges))
	var joined []byte
	for i, pair := range s.Merges {
		for _, id := range pair {
			if int(id) >= len(s.Tokens) || len(s.Tokens[id]) == 0 {
				return errors.New("compile vocabulary: merge " + strconv.Itoa(i) + " names token " + strconv.Itoa(int(id)) + ", which does not exist")
			}
		}
		joined = append(append(joined[:0], s.Tokens[pair[0]]...), s.Tokens[pair[1]]...)
		id, ok := c.byBytes[string(joined)]
		if !ok {
			return errors.New("compile vocabulary: merge " + strconv.Itoa(i) + " makes bytes that are no token")
		}
		c.pairs[pair] = merging{uint32(i), id} // a repeated pair has its last rank, as in HF
	}
	return nil
}

// merging returns what two neighbours become.
func (c *compiler) merging(left, right uint32) merging {
	if c.spec.ByRank {
		a, b := c.spec.Tokens[left], c.spec.Tokens[right]
		var room [64]byte
		if id, ok := c.byBytes[string(append(append(room[:0], a...), b...))]; ok {
			return merging{id, id}
		}
		return merging{unranked, None}
	}
	if m, ok := c.pairs[[2]uint32{left, right}]; ok {
		return m
	}
	return merging{unranked, None}
}

// derive merges every token's own bytes.
func (c *compiler) derive() {
	c.rank = make([]uint32, len(c.spec.Tokens))
	c.latest = make([]uint32, len(c.spec.Tokens))
	var ids []uint32
	var next []merging
	for id, token := range c.spec.Tokens {
		c.rank[id] = unranked
		if len(token) < 2 {
			continue
		}
		ids, next = ids[:0], next[:0]
		for _, b := range token {
			ids = append(ids, c.ones[b])
		}
		if slices.Contains(ids, None) {
			continue
		}
		for i := 0; i+1 < len(ids); i++ {
			next = append(next, c.merging(ids[i], ids[i+1]))
		}
		last, highest := uint32(0), uint32(0)
		for len(next) > 0 {
			best := 0
			for i := range next {
				if next[i].rank < next[best].rank {
					best = i
				}
			}
			m := next[best]
			if m.rank == unranked {
				break
			}
			last, highest = m.rank, max(highest, m.rank)
			ids[best] = m.id
			ids = slices.Delete(ids, best+1, best+2)
			next = slices.Delete(next, best, best+1)
			if best > 0 {
				next[best-1] = c.merging(ids[best-1], ids[best])
			}
			if best < len(next) {
				next[best] = c.merging(ids[best], ids[best+1])
			}
		}
		if len(ids) == 1 && ids[0] == uint32(id) {
			c.rank[id], c.latest[id] = last, highest
		}
	}
}

// number chooses the indexes: ids themselves if they ascend with the ranks.
func (c *compiler) number() {
	for id := range c.rank {
		if c.rank[id] != unranked {
			c.merged = append(c.merged, uint32(id))
		}
	}
	byRank := func(a, b uint32) int { return int(int64(c.rank[a]) - int64(c.rank[b])) }
	if slices.IsSortedFunc(c.merged, byRank) {
		return
	}
	slices.SortStableFunc(c.merged, byRank)
	c.toIndex = make([]uint32, len(c.spec.Tokens))
	for id, token := range c.spec.Tokens {
		c.toIndex[id] = None
		if len(token) > 0 && c.rank[id] == unranked {
			c.toIndex[id] = uint32(len(c.toID))
			c.toID = append(c.toID, uint32(id))
		}
	}
	for _, id := range c.merged {
		c.toIndex[id] = uint32(len(c.toID))
		c.toID = append(c.toID, id)
	}
}

func (c *compiler) index(id uint32) uint32 {
	if c.toIndex == nil || id == None {
		return id
	}
	return c.toIndex[id]
}

// edge is a part of a character in a token that crosses the character's edge.
type edge struct {
	part  string
	ascii bool // what lies across the edge is ASCII
}

// safe returns the ids of the characters that merge first anywhere, and of those that do where
// no neighbour is ASCII.
func (c *compiler) safe() (anywhere, inside []uint32) {
	// The earliest token across each edge. A part that begins a character is never the same
	// bytes as one that ends a character, so both are kept in one map.
	earliest := map[edge]uint32{}
	note := func(part []byte, neighbour byte, rank uint32) {
		e := edge{string(part), neighbour < 0x80}
		if have, ok := earliest[e]; !ok || rank < have {
			earliest[e] = rank
		}
	}
	for _, id := range c.merged {
		token, rank := c.spec.Tokens[id], c.rank[id]
		if n := openHead(token); n > 0 && n < len(token) {
			note(token[len(token)-n:], token[len(token)-n-1], rank)
		}
		if n := leadingTail(token); n > 0 && n < len(token) {
			note(token[:n], token[n], rank)
		}
	}
	for _, id := range c.merged {
		token := c.spec.Tokens[id]
		if sequenceLength(token[0]) != len(token) || leadingTail(token[1:]) != len(token)-1 {
			continue
		}
		beside := [2]uint32{unranked, unranked} // others, ASCII
		for i, ascii := range [2]bool{false, true} {
			for n := 1; n < len(token); n++ {
				for _, part := range [2][]byte{token[:n], token[n:]} {
					if rank, ok := earliest[edge{string(part), ascii}]; ok {
						beside[i] = min(beside[i], rank)
					}
				}
			}
		}
		if c.latest[id] < beside[0] {
			inside = append(inside, id)
			if c.latest[id] < beside[1] {
				anywhere = append(anywhere, id)
			}
		}
	}
	return anywhere, inside
}

// sequenceLength returns how many bytes the UTF-8 sequence has that begins with b, 0 if none does.
func sequenceLength(b byte) int {
	switch {
	case b < 0x80:
		return 1
	case b >= 0xc2 && b < 0xe0:
		return 2
	case b >= 0xe0 && b < 0xf0:
		return 3
	case b >= 0xf0 && b < 0xf5:
		return 4
	}
	return 0
}

// leadingTail counts the continuation bytes at the beginning.
func leadingTail(b []byte) int {
	n := 0
	for n < len(b) && b[n]&0xc0 == 0x80 {
		n++
	}
	return n
}

// openHead returns how many bytes at the end begin a character that is not complete.
func openHead(b []byte) int {
	for n := 1; n <= 3 && n <= len(b); n++ {
		first := b[len(b)-n]
		if first&0xc0 == 0x80 {
			continue
		}
		if sequenceLength(first) > n {
			return n
		}
		break
	}
	return 0
}

func (c *compiler) write() ([]byte, error) {
	s := c.spec
	h := header{kind: uint8(s.Kind), indexes: len(s.Tokens), longest: 1, text: paddingBytes, before: len(s.Before), after: len(s.After)}
	if c.toID != nil {
		h.indexes = len(c.toID)
	}
	if h.before > MaxEnclosing || h.after > MaxEnclosing || len(s.Added) >= MaxAdded {
		return nil, errors.New("compile vocabulary: too many added or enclosing tokens")
	}
	for flag, set := range map[uint16]bool{FlagNFC: s.NFC, FlagWhole: s.Whole, FlagPrefixSpace: s.PrefixSpace, FlagIDs: c.toID != nil} {
		if set {
			h.flags |= flag
		}
	}
	var wholes []uint32
	for id, token := range s.Tokens {
		h.longest = max(h.longest, len(token))
		h.text += len(token)
		if s.Whole && len(token) > 1 && c.rank[id] == unranked {
			wholes = append(wholes, uint32(id))
		}
	}
	h.slotBits = uint8(max(8, bits.Len(uint(max(len(c.merged)*3/2, h.indexes)))))
	if h.slotBits > 21 {
		return nil, errors.New("compile vocabulary: too many tokens")
	}
	if len(wholes) > 0 {
		h.wholeBits = uint8(bits.Len(uint(2 * len(wholes))))
	}
	raw, normal, err := c.added(&h)
	if err != nil {
		return nil, err
	}
	h.ids = len(s.Tokens)
	for _, a := range s.Added {
		h.ids = max(h.ids, int(a.ID)+1)
	}
	for _, id := range slices.Concat(s.Before, s.After) {
		h.ids = max(h.ids, int(id)+1)
	}
	h.layout()
	h.size = h.atText + h.text
	if h.size > MaxFileBytes {
		return nil, errors.New("compile vocabulary: larger than " + strconv.Itoa(MaxFileBytes) + " bytes")
	}
	b := make([]byte, h.size)
	c.fill(b, &h, wholes, slices.Concat(raw, normal))
	return b, c.prove(b)
}

// added sorts the added tokens into the two tables and adds their contents to h.text.
func (c *compiler) added(h *header) (raw, normal []AddedSpec, err error) {
	for i, a := range c.spec.Added {
		if !a.Normalized {
			a.Match = a.Content
		}
		if a.Match == "" || len(a.Match) > MaxTokenBytes || len(a.Content) > MaxTokenBytes {
			return nil, nil, errors.New("compile vocabulary: added token " + strconv.Itoa(i) + " is empty or longer than " + strconv.Itoa(MaxTokenBytes) + " bytes")
		}
		if a.ID >= MaxFileBytes/4 {
			return nil, nil, errors.New("compile vocabulary: added token " + strconv.Itoa(i) + " has an impossible id")
		}
		h.text += len(a.Match)
		if a.Match != a.Content {
			h.text += len(a.Content)
		}
		if a.Normalized {
			normal = append(normal, a)
		} else {
			raw = append(raw, a)
		}
	}
	for _, list := range [][]AddedSpec{raw, normal} {
		slices.SortStableFunc(list, func(a, b AddedSpec) int {
			if a.Match < b.Match {
				return -1
			} else if a.Match > b.Match {
				return 1
			}
			return 0
		})
		for i := 1; i < len(list); i++ {
			if list[i].Match == list[i-1].Match {
				return nil, nil, errors.New("compile vocabulary: two added tokens match " + strconv.Quote(list[i].Match))
			}
		}
	}
	h.addedRaw, h.addedNormal = len(raw), len(normal)
	return raw, normal, nil
}

func (c *compiler) fill(b []byte, h *header, wholes []uint32, added []AddedSpec) {
	le, s := binary.LittleEndian, c.spec
	copy(b, "WPV1")
	le.PutUint16(b[4:], Version)
	le.PutUint16(b[6:], h.flags)
	le.PutUint32(b[24:], uint32(h.size))
	b[28], b[29], b[30] = h.kind, h.slotBits, h.wholeBits
	le.PutUint32(b[32:], uint32(h.indexes))
	le.PutUint32(b[36:], uint32(h.text))
	le.PutUint32(b[40:], uint32(h.ids))
	le.PutUint16(b[44:], uint16(h.longest))
	le.PutUint16(b[46:], uint16(h.addedRaw))
	le.PutUint16(b[48:], uint16(h.addedNormal))
	b[50], b[51] = byte(h.before), byte(h.after)

	text := b[h.atText:h.atText]
	for index := range h.indexes {
		id := index
		if c.toID != nil {
			id = int(c.toID[index])
		}
		text = append(text, s.Tokens[id]...)
		le.PutUint32(b[h.atEnds+4*(index+1):], uint32(len(text)))
	}
	for at := h.atSlots; at < h.atOne; at += 4 {
		le.PutUint32(b[at:], emptySlot)
	}
	for _, id := range c.merged {
		hash := HashBytes(s.Tokens[id])
		tag := uint32(hash>>(64-h.slotBits-tagBits)) << indexBits
		place(b[h.atSlots:h.atWholes], hash>>(64-h.slotBits), tag|c.index(id))
	}
	for _, id := range wholes {
		place(b[h.atWholes:h.atOne], HashBytes(s.Tokens[id])>>(64-h.wholeBits), c.index(id))
	}
	for i, id := range c.ones {
		le.PutUint32(b[h.atOne+4*i:], c.index(id))
	}
	anywhere, inside := c.safe()
	for half, ids := range [2][]uint32{anywhere, inside} {
		for _, id := range ids {
			index := c.index(id)
			at := h.atSafe + half*(h.atIDs-h.atSafe)/2 + int(index/32*4)
			le.PutUint32(b[at:], le.Uint32(b[at:])|1<<(index%32))
		}
	}
	for i, id := range c.toID {
		le.PutUint32(b[h.atIDs+4*i:], id)
	}
	if c.toID != nil {
		for id := range h.ids {
			index := uint32(None)
			if id < len(c.toIndex) {
				index = c.toIndex[id]
			}
			le.PutUint32(b[h.atIndexes+4*id:], index)
		}
	}
	order := make([]uint32, len(added))
	for i, a := range added {
		e := b[h.atAdded+i*addedBytes:]
		le.PutUint32(e, a.ID)
		le.PutUint32(e[4:], uint32(len(text)))
		le.PutUint16(e[8:], uint16(len(a.Match)))
		le.PutUint16(e[10:], a.flags())
		text = append(text, a.Match...)
		original := len(text) - len(a.Match)
		if a.Match != a.Content {
			original = len(text)
			text = append(text, a.Content...)
		}
		le.PutUint32(e[12:], uint32(original))
		le.PutUint16(e[16:], uint16(len(a.Content)))
		order[i] = uint32(i)
	}
	slices.SortStableFunc(order, func(x, y uint32) int { return int(int64(added[x].ID) - int64(added[y].ID)) })
	for i, at := range order {
		le.PutUint32(b[h.atByID+4*i:], at)
	}
	for i, id := range slices.Concat(s.Before, s.After) {
		le.PutUint32(b[h.atEnclosing+4*i:], id)
	}
	sum := highwayhash.Sum128(b[sumFrom:], sumKey)
	copy(b[8:24], sum[:])
}

func (a *AddedSpec) flags() (flags uint16) {
	if a.Special {
		flags |= AddedSpecial
	}
	if a.LStrip {
		flags |= AddedLStrip
	}
	if a.RStrip {
		flags |= AddedRStrip
	}
	if a.SingleWord {
		flags |= AddedSingleWord
	}
	return flags
}

func place(table []byte, at uint64, slot uint32) {
	mask := uint64(len(table)/4 - 1)
	for binary.LittleEndian.Uint32(table[4*(at&mask):]) != emptySlot {
		at++
	}
	binary.LittleEndian.PutUint32(table[4*(at&mask):], slot)
}

// prove loads the file and looks every token up.
func (c *compiler) prove(b []byte) error {
	v, err := Load(b)
	if err != nil {
		return err
	}
	for id, token := range c.spec.Tokens {
		if string(v.Token(uint32(id))) != string(token) {
			return errors.New("compile vocabulary: token " + strconv.Itoa(id) + " does not come back")
		}
		if len(token) < 2 {
			continue
		}
		want := uint32(None)
		if c.rank[id] != unranked {
			want = c.index(uint32(id))
		}
		if v.Find(HashBytes(token), token) != want {
			return errors.New("compile vocabulary: token " + strconv.Itoa(id) + " is not found by its bytes")
		}
	}
	return nil
}

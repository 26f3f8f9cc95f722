package dohost

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

type headKind byte

const (
	headOther headKind = iota // nil, booleans, floats
	headInt
	headUint
	headBytes // of n bytes
	headList  // of n values
	headMap   // of n keys and values
)

// header is the first bytes of a value: the whole value, unless it has n bytes or values after the header.
type header struct {
	kind headKind
	size int // in bytes; zero if the value is not known, or cut off
	n    int
	int  int64
	uint uint64
}

func (h header) text() string {
	if h.kind == headInt {
		return fmt.Sprint(h.int)
	}
	return fmt.Sprint(h.uint)
}

// head reads the header of a value.
func head(b []byte) header {
	if len(b) == 0 {
		return header{}
	}
	c := b[0]
	switch {
	case c < fixedMap || c >= negative:
		return header{kind: headInt, size: 1, int: int64(int8(c))}
	case c < fixedList:
		return header{kind: headMap, size: 1, n: int(c - fixedMap)}
	case c < fixedText:
		return header{kind: headList, size: 1, n: int(c - fixedList)}
	case c < wider:
		return header{kind: headBytes, size: 1, n: int(c - fixedText)}
	}
	return wideHead(b)
}

// The first codes of the values with a header of one byte, and of those with a wider one. The codes before fixedMap
// and from negative on are integers.
const (
	fixedMap  = 0x80
	fixedList = 0x90
	fixedText = 0xa0
	wider     = 0xc0
	negative  = 0xe0
)

func wideHead(b []byte) header {
	w := &wide[b[0]]
	if len(b) < 1+w.bytes || !w.known {
		return header{}
	}
	var u uint64
	switch w.bytes {
	case 1:
		u = uint64(b[1])
	case 2:
		u = uint64(binary.BigEndian.Uint16(b[1:]))
	case 4:
		u = uint64(binary.BigEndian.Uint32(b[1:]))
	case 8:
		u = binary.BigEndian.Uint64(b[1:])
	}
	h := header{kind: w.kind, size: 1 + w.bytes, uint: u}
	switch {
	case w.kind == headInt:
		shift := 64 - 8*w.bytes
		h.int = int64(u<<shift) >> shift
	case w.kind > headUint && u <= math.MaxInt32:
		h.n = int(u) + w.extra
	case w.kind > headUint:
		return header{}
	}
	return h
}

// wide lists the codes with a number after them.
var wide = func() (t [256]struct {
	known bool
	kind  headKind
	bytes int
	extra int // bytes of the value beyond the number
}) {
	set := func(kind headKind, extra, bytes int, codes ...byte) {
		for _, c := range codes {
			t[c].known, t[c].kind, t[c].bytes, t[c].extra = true, kind, bytes, extra
			bytes *= 2
		}
	}
	set(headInt, 0, 1, msgpcode.Int8, msgpcode.Int16, msgpcode.Int32, msgpcode.Int64)
	set(headUint, 0, 1, msgpcode.Uint8, msgpcode.Uint16, msgpcode.Uint32, msgpcode.Uint64)
	set(headBytes, 0, 1, msgpcode.Str8, msgpcode.Str16, msgpcode.Str32)
	set(headBytes, 0, 1, msgpcode.Bin8, msgpcode.Bin16, msgpcode.Bin32)
	set(headBytes, 1, 1, msgpcode.Ext8, msgpcode.Ext16, msgpcode.Ext32) // and the ext's type
	set(headList, 0, 2, msgpcode.Array16, msgpcode.Array32)
	set(headMap, 0, 2, msgpcode.Map16, msgpcode.Map32)
	set(headOther, 0, 4, msgpcode.Float, msgpcode.Double)
	set(headOther, 0, 0, msgpcode.Nil, msgpcode.False, msgpcode.True)
	for i, c := range []byte{msgpcode.FixExt1, msgpcode.FixExt2, msgpcode.FixExt4, msgpcode.FixExt8, msgpcode.FixExt16} {
		t[c].known, t[c].kind, t[c].extra = true, headBytes, 1+1<<i
	}
	return t
}()

// short returns the size of a text of less than 32 bytes, header included, which most
// names and many values are; zero for everything else.
func short(b []byte) int {
	if len(b) > 0 && b[0]-fixedText < wider-fixedText && int(b[0]-fixedText) < len(b) {
		return 1 + int(b[0]-fixedText)
	}
	return 0
}

// skipped returns the bytes after n values, or nil.
func skipped(b []byte, n int) []byte {
	for ; n > 0; n-- {
		if text := short(b); text > 0 {
			b = b[text:]
			continue
		}
		h := head(b)
		if h.size == 0 {
			return nil
		}
		b = b[h.size:]
		switch h.kind {
		case headBytes:
			if h.n > len(b) {
				return nil
			}
			b = b[h.n:]
		case headList:
			n += h.n
		case headMap:
			n += 2 * h.n
		}
	}
	return b
}

package dohost

import (
	"encoding/binary"
	"math"
	"reflect"
	"time"
)

// Key is a place in an index: a list of parts. Keys order by their first parts, then by their second, and so on.
// [KeyOf] makes a part, and + joins them:
//
//	dohost.KeyOf(o.Status) + dohost.KeyOf(o.PlacedAt)
//
// A key that is a prefix of another sorts before it. Keys are compared by bytes, so programs may compare them
// with < and store them as strings. The encoding is part of the format on disk.
//
// An index entry is the key, a zero byte and the row's key, and only whole parts mark the end of the key. So a row's
// key in an index must consist of whole parts. A write with any other key returns [ErrMisuse].
type Key string

// KeyPart is the set of types of a part of a [Key]. Integers of any type order by value, and so do floats: NaN
// first, and minus zero as zero. Strings order by bytes, times by instant in any zone, and false before true. Parts
// of different kinds order by kind: booleans, integers, floats, strings, times.
type KeyPart interface {
	~bool | ~int | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64 | ~string | time.Time
}

// First bytes of parts. None is zero, which ends a key in the index, nor 0xff.
const (
	partFalse    = 0x08
	partTrue     = 0x09
	partNegative = 0x10
	partInteger  = 0x11
	partFloat    = 0x18
	partString   = 0x20
	partTime     = 0x28
)

// KeyOf returns the key with the one part p.
func KeyOf[P KeyPart](p P) Key {
	if t, ok := any(p).(time.Time); ok {
		return timePart(t)
	}
	switch v := reflect.ValueOf(p); {
	case v.Kind() == reflect.String:
		return stringPart(v.String()) + "\x00"
	case v.Kind() == reflect.Bool && v.Bool():
		return Key([]byte{partTrue})
	case v.Kind() == reflect.Bool:
		return Key([]byte{partFalse})
	case v.CanFloat():
		return floatPart(v.Float())
	case v.CanUint():
		return number(partInteger, v.Uint())
	case v.Int() < 0:
		return number(partNegative, uint64(v.Int()))
	default:
		return number(partInteger, uint64(v.Int()))
	}
}

// KeyPrefix returns a key that is only valid as a [Query]'s Prefix. It selects the keys with a string part at this
// place that begins with s.
func KeyPrefix(s string) Key { return stringPart(s) }

// PrefixEnd returns the first key after k and after all keys that begin with k. As a [Query]'s End it makes k the last
// key.
func (k Key) PrefixEnd() Key { return k + "\xff" }

// wholeParts reports whether k is a result of KeyOf, or several results joined.
func (k Key) wholeParts() bool {
	for len(k) > 0 {
		n := 0
		switch k[0] {
		case partFalse, partTrue:
			n = 1
		case partNegative, partInteger, partFloat:
			n = 1 + 8
		case partTime:
			n = 1 + 8 + 4
		case partString:
			n = stringPartLen(k)
		}
		if n == 0 || n > len(k) {
			return false
		}
		k = k[n:]
	}
	return true
}

// stringPartLen returns the length of the string part at the front of k, or zero if
// it has no end: a zero byte that is not followed by 0xff.
func stringPartLen(k Key) int {
	for i := 1; i < len(k); i++ {
		switch {
		case k[i] != 0:
		case i+1 < len(k) && k[i+1] == 0xff:
			i++
		default:
			return i + 1
		}
	}
	return 0
}

func number(first byte, n uint64) Key {
	var part [9]byte
	part[0] = first
	binary.BigEndian.PutUint64(part[1:], n)
	return Key(part[:])
}

// floatPart flips the sign bit of positive numbers and all bits of negative ones,
// so they sort as integers.
func floatPart(f float64) Key {
	bits := math.Float64bits(f)
	switch {
	case math.IsNaN(f):
		bits = 0
	case f < 0:
		bits = ^bits
	default: // minus zero too, which becomes zero
		bits |= 1 << 63
	}
	return number(partFloat, bits)
}

// stringPart omits the zero byte that ends the part. A zero byte in the string is followed by 0xff; no part begins
// with 0xff.
func stringPart(s string) Key {
	b := append(make([]byte, 0, len(s)+2), partString)
	for i := range len(s) {
		b = append(b, s[i])
		if s[i] == 0 {
			b = append(b, 0xff)
		}
	}
	return Key(b)
}

// timePart encodes seconds, which may be negative, and nanoseconds.
func timePart(t time.Time) Key {
	k := binary.BigEndian.AppendUint64([]byte{partTime}, uint64(t.Unix())^1<<63)
	return Key(binary.BigEndian.AppendUint32(k, uint32(t.Nanosecond())))
}

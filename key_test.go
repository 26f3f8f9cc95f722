package dohost_test

import (
	"cmp"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
)

// FuzzKeyOrder compares keys of one and two parts with the parts themselves.
func FuzzKeyOrder(f *testing.F) {
	f.Add("a", "a\x00", int64(-1), int64(0), uint64(1), uint64(math.MaxUint64), 1.5, -1.5, int64(-1), int64(1))
	f.Add("a\x00\xff", "a\xff", int64(math.MinInt64), int64(math.MaxInt64), uint64(0), uint64(255), math.Inf(-1), math.NaN(), int64(0), int64(1e9))
	f.Add("", "\x00", int64(5), int64(5), uint64(5), uint64(5), 0.0, math.Copysign(0, -1), int64(math.MinInt64), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, s1, s2 string, i1, i2 int64, u1, u2 uint64, f1, f2 float64, n1, n2 int64) {
		t1, t2 := time.Unix(n1>>8, n1&0xff).UTC(), time.Unix(n2>>8, n2&0xff)
		one := []part{
			of(s1, s2), of(i1, i2), of(u1, u2), of(f1, f2),
			{dohost.KeyOf(t1), dohost.KeyOf(t2), t1.Compare(t2)},
			{dohost.KeyOf(i1), dohost.KeyOf(u2), compareIntegers(i1, u2)},
			{dohost.KeyOf(i1 < 0), dohost.KeyOf(i2 < 0), cmp.Compare(b2i(i1 < 0), b2i(i2 < 0))},
		}
		for i, a := range one {
			check(t, "part", i, a)
			for j, b := range one {
				check(t, "pair", 10*i+j, part{a.x + b.x, a.y + b.y, cmp.Or(a.want, b.want)})
			}
			// A key sorts before the keys that it begins, and its PrefixEnd after them.
			check(t, "begun", i, part{a.x, a.x + one[0].x, -1})
			check(t, "past", i, part{a.x.PrefixEnd(), a.x + one[0].x, 1})
			if a.want != 0 {
				check(t, "past", i, part{a.x.PrefixEnd(), a.y, a.want})
			}
		}
		if begins := strings.HasPrefix(s2, s1); begins != strings.HasPrefix(string(dohost.KeyOf(s2)), string(dohost.KeyPrefix(s1))) {
			t.Errorf("%q begins %q: %v; their keys disagree", s1, s2, begins)
		}
	})
}

// part is two keys and the expected result of their comparison.
type part struct {
	x, y dohost.Key
	want int
}

func of[P interface {
	dohost.KeyPart
	cmp.Ordered
}](x, y P) part {
	return part{dohost.KeyOf(x), dohost.KeyOf(y), cmp.Compare(x, y)}
}

// check compares two keys, alone and as they are in an index: ended by a zero byte
// and followed by the key of a row, which must not matter unless they are equal.
func check(t *testing.T, what string, i int, p part) {
	t.Helper()
	if got := cmp.Compare(p.x, p.y); got != p.want {
		t.Errorf("%s %d: %q and %q compare %d; want %d", what, i, p.x, p.y, got, p.want)
	}
	if p.want != 0 && what != "past" {
		if got := cmp.Compare(p.x+"\x00\xff", p.y+"\x00\x00"); got != p.want {
			t.Errorf("%s %d: %q and %q compare %d in an index; want %d", what, i, p.x, p.y, got, p.want)
		}
	}
}

func compareIntegers(i int64, u uint64) int {
	if i < 0 {
		return -1
	}
	return cmp.Compare(uint64(i), u)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestKeyEncodingIsStable holds the bytes of keys, which are in indexes on disk.
func TestKeyEncodingIsStable(t *testing.T) {
	type status string
	at := time.Date(2031, 4, 5, 6, 7, 8, 9, time.FixedZone("", 3600))
	for _, c := range []struct {
		key  dohost.Key
		want string
	}{
		{dohost.KeyOf(""), " \x00"},
		{dohost.KeyOf(status("a\x00é")), " a\x00\xffé\x00"},
		{dohost.KeyPrefix("a"), " a"},
		{dohost.KeyOf(uint8(5)), "\x11\x00\x00\x00\x00\x00\x00\x00\x05"},
		{dohost.KeyOf(5), "\x11\x00\x00\x00\x00\x00\x00\x00\x05"},
		{dohost.KeyOf(int16(-2)), "\x10\xff\xff\xff\xff\xff\xff\xff\xfe"},
		{dohost.KeyOf(float32(1.5)), "\x18\xbf\xf8\x00\x00\x00\x00\x00\x00"},
		{dohost.KeyOf(-1.5), "\x18\x40\x07\xff\xff\xff\xff\xff\xff"},
		{dohost.KeyOf(math.NaN()), "\x18\x00\x00\x00\x00\x00\x00\x00\x00"},
		{dohost.KeyOf(false) + dohost.KeyOf(true), "\x08\x09"},
		{dohost.KeyOf(at), "\x28\x80\x00\x00\x00\x73\x39\x40\xfc\x00\x00\x00\x09"},
		{dohost.KeyOf(at.UTC()), string(dohost.KeyOf(at))},
		{dohost.KeyOf(5).PrefixEnd(), "\x11\x00\x00\x00\x00\x00\x00\x00\x05\xff"},
	} {
		if string(c.key) != c.want {
			t.Errorf("%q; want %q", c.key, c.want)
		}
	}
}

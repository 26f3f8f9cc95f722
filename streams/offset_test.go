package streams

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dohost/dohost"
)

// TestOffsetsSortAsTheirPositions draws positions, and compares the order of their offsets with the order of their numbers.
func TestOffsetsSortAsTheirPositions(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	number := func() uint64 { return r.Uint64() >> r.IntN(64) }
	var all []position
	for range 2000 {
		all = append(all, position{history{number(), number(), number(), uint32(number())}, number()})
	}
	for range 2000 { // neighbors, which differ in one number
		p := all[r.IntN(len(all))]
		*[]*uint64{&p.History.Host, &p.History.Incarnation, &p.History.Serial, &p.N}[r.IntN(4)]++
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b position) int { return strings.Compare(a.String(), b.String()) })
	for i, p := range all {
		text := p.String()
		if got, err := parseOffset(text); err != nil || got != p {
			t.Fatalf("seed %d: %q is parsed as %+v, %v; want %+v", seed, text, got, err, p)
		}
		if len(text) > 100 || strings.ContainsAny(text, ",&=?/ ") || text == offsetStart || text == offsetNow {
			t.Fatalf("seed %d: bad offset %q", seed, text)
		}
		if i > 0 && slices.Compare(numbersOf(all[i-1]), numbersOf(p)) > 0 {
			t.Fatalf("seed %d: %+v sorts before %+v", seed, all[i-1], p)
		}
	}
}

func numbersOf(p position) []uint64 {
	return []uint64{p.History.Host, p.History.Incarnation, p.History.Serial, uint64(p.History.Fork), p.N}
}

// TestHistorySortsAfterTheLastOne has the history of an imported stream from a store with a higher generation.
func TestHistorySortsAfterTheLastOne(t *testing.T) {
	imported := history{Host: 9, Incarnation: 5, Serial: 1, Fork: 7}
	a := position{imported, 1000}.String()
	b := position{historyOf(dohost.Epoch{Host: 2, Incarnation: 1, Fork: 3}, 1, imported), 0}.String()
	if a >= b {
		t.Errorf("%s, and later %s", a, b)
	}
}

// FuzzParseOffset requires that an accepted text is the offset of its position.
func FuzzParseOffset(f *testing.F) {
	valid := position{history{3, 12, 1, 0xdeadbeef}, 1000}.String()
	for _, s := range []string{valid, "", "_", "-1", "now", valid + "0", valid[1:], "1311100000000_10", "gffffffffffffffff", "0,1", strings.ToUpper(valid)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := parseOffset(s); err == nil && p.String() != s {
			t.Errorf("%q is %+v, whose offset is %q", s, p, p)
		}
	})
}

package frame

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/oklog/ulid/v2"
)

var store = ulid.MustParse("01ARZ3NDEKTSV4RRFFQ69G5FAV")

// start is the position before the first record of the tests.
func start() Position { return Position{Store: store, Fork: 0x5f0c3a91} }

// encode returns the frame of a header and a payload.
func encode(h *Header, payload []byte) []byte {
	b := make([]byte, Size(len(payload)))
	Encode(b, h, payload)
	return b
}

// history returns the frames of n records, which set a key to the number of the record.
func history(n int) (frames [][]byte) {
	p := start()
	for i := range n {
		h := p.Header(1+uint64(i)/3, int64(1000+i))
		b := encode(&h, AppendSet(nil, []byte("key"), fmt.Append(nil, i+1)))
		if _, _, err := p.Next(b); err != nil {
			panic(err)
		}
		frames = append(frames, b)
	}
	return frames
}

// replay verifies frames from the beginning, and returns how many are valid.
func replay(frames [][]byte) (n int, err error) {
	p := start()
	for b := slices.Concat(frames...); len(b) > 0; n++ {
		if _, b, err = p.Next(b); err != nil {
			return n, err
		}
	}
	return n, nil
}

// TestDamageOfAHistoryIsRefusedByNumber damages a history of six records in each way.
func TestDamageOfAHistoryIsRefusedByNumber(t *testing.T) {
	whole := history(6)
	if n, err := replay(whole); n != 6 || err != nil {
		t.Fatalf("the whole history: %d records, %v", n, err)
	}
	tried := 0
	refused := func(frames [][]byte, number int, reason, damage string) {
		t.Helper()
		tried++
		var e *Error
		n, err := replay(frames)
		if n != number-1 || !errors.As(err, &e) || e.Number != uint64(number) || e.Base || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %d records, %v; want a refusal of record %d because %q", damage, n, err, number, reason)
		}
	}
	for i := range whole {
		number := i + 1
		for bit := range len(whole[i]) * 8 {
			damaged := slices.Clone(whole)
			damaged[i] = bytes.Clone(whole[i])
			damaged[i][bit/8] ^= 1 << (bit % 8)
			refused(damaged, number, "", fmt.Sprintf("bit %d of record %d", bit, number))
		}
		for cut := 1; cut < len(whole[i]); cut++ {
			torn := append(slices.Clone(whole[:i]), whole[i][:cut])
			refused(torn, number, "", fmt.Sprintf("record %d of %d bytes", number, cut))
		}
		if number < len(whole) {
			refused(slices.Delete(slices.Clone(whole), i, number), number, "it is missing", fmt.Sprintf("record %d missing", number))
			swapped := slices.Clone(whole)
			swapped[i], swapped[number] = swapped[number], swapped[i]
			refused(swapped, number, "it is missing", fmt.Sprintf("records %d and %d swapped", number, number+1))
		}
		refused(slices.Insert(slices.Clone(whole), number, whole[i]), number+1, "is repeated", fmt.Sprintf("record %d repeated", number))
	}
	t.Logf("%d damages", tried)
	if tried < 6*8*headerSize {
		t.Errorf("only %d damages were tried", tried)
	}
}

// TestRecordsOfOtherHistoriesAreRefused has well-formed frames in the place of record 3.
func TestRecordsOfOtherHistoriesAreRefused(t *testing.T) {
	p := start()
	for _, b := range history(2) {
		if _, _, err := p.Next(b); err != nil {
			t.Fatal(err)
		}
	}
	at := p
	for _, c := range []struct {
		change func(*Header)
		reason string
	}{
		{func(h *Header) { h.Store[0]++ }, "is of store"},
		{func(h *Header) { h.Fork++ }, "is of store"},
		{func(h *Header) { h.Prev[31]++ }, "does not continue this record 2"},
		{func(h *Header) { h.Generation = 0 }, "its generation is 0"},
		{func(h *Header) { h.Time = at.Time - 1 }, "its time precedes"},
		{func(h *Header) { h.Kind = KindBase }, "no record"},
		{func(h *Header) { h.Kind = 'x' }, "no record"},
		{func(h *Header) { h.Part = 1 }, "no record"},
	} {
		h := at.Header(1, at.Time)
		c.change(&h)
		_, _, err := p.Next(encode(&h, nil))
		if err == nil || !strings.HasPrefix(err.Error(), "record 3: ") || !strings.Contains(err.Error(), c.reason) || p != at {
			t.Errorf("want a refusal because %q: %v", c.reason, err)
		}
	}
	long := encode(&Header{Kind: KindRecord}, nil)
	binary.BigEndian.PutUint32(long[5:], MaxPayload+1)
	if _, _, err := p.Next(long); err == nil || !strings.Contains(err.Error(), "limit is 1073741824") {
		t.Errorf("a payload beyond the limit: %v", err)
	}
}

func TestClockThatRunsBackwardKeepsTheTimesInOrder(t *testing.T) {
	p := start()
	p.Time = 500
	if h := p.Header(1, 400); h.Time != 500 {
		t.Errorf("the next record has time %d", h.Time)
	}
	if h := p.Header(1, 600); h.Time != 600 {
		t.Errorf("the next record has time %d", h.Time)
	}
}

// base returns the parts of a base of the state at p, whose contents begin with a byte.
func base(p *Position, parts int, content byte) (all [][]byte) {
	var last Sum
	for i := range parts {
		h := p.BaseHeader(uint32(i), i == parts-1, last)
		b := make([]byte, Size(2))
		last = Encode(b, &h, []byte{content, byte(i)})
		all = append(all, b)
	}
	return all
}

func TestDamageOfABaseIsRefusedByNumber(t *testing.T) {
	p := start()
	for _, b := range history(3) {
		_, _, _ = p.Next(b)
	}
	whole := base(&p, 3, 0)
	verify := func(parts [][]byte) (n int, err error) {
		v := NewBase(3)
		for _, b := range parts {
			if _, err := v.Next(b); err != nil {
				return n, err
			}
			n++
		}
		if at, complete := v.Position(); complete && at != p {
			t.Errorf("a base of %+v is at %+v", p, at)
		} else if !complete {
			return n, errShort
		}
		return n, nil
	}
	if n, err := verify(whole); n != 3 || err != nil {
		t.Fatalf("the whole base: %d parts, %v", n, err)
	}
	refused := func(parts [][]byte, part int, damage string) {
		t.Helper()
		var e *Error
		n, err := verify(parts)
		if n != part || !errors.As(err, &e) || e.Number != 3 || !e.Base || e.Part != uint32(part) {
			t.Errorf("%s: %d parts, %v", damage, n, err)
		}
	}
	others := [][][]byte{base(&p, 3, 1), base(&Position{Store: store, Fork: 1, Number: 3}, 3, 0)}
	for i := range whole {
		for bit := range len(whole[i]) * 8 {
			damaged := slices.Clone(whole)
			damaged[i] = bytes.Clone(whole[i])
			damaged[i][bit/8] ^= 1 << (bit % 8)
			refused(damaged, i, fmt.Sprintf("bit %d of part %d", bit, i))
		}
		refused(slices.Insert(slices.Clone(whole), i+1, whole[i]), i+1, "a part twice")
		for j := 0; j < len(others) && i > 0; j++ {
			mixed := slices.Clone(whole)
			mixed[i] = others[j][i]
			refused(mixed, i, "a part of another base")
		}
		trailing := slices.Clone(whole)
		trailing[i] = append(bytes.Clone(whole[i]), 0)
		refused(trailing, i, "bytes after a part")
	}
	refused(whole[1:], 0, "without the first part")
	if _, err := verify(whole[:2]); !errors.Is(err, errShort) {
		t.Errorf("without the last part: %v", err)
	}
	if _, err := NewBase(4).Next(whole[0]); err == nil {
		t.Error("a part is accepted for the base of another record")
	}
}

// TestLayout reads a frame without the codec.
func TestLayout(t *testing.T) {
	h := Header{Kind: KindRecord, Store: store, Fork: 0x5f0c3a91, Generation: 2, Number: 3, Part: 4, Time: 5}
	h.Prev[0], h.Prev[31] = 6, 7
	got := encode(&h, AppendSet(nil, []byte("k"), []byte("value")))
	want := "dhf1r\x00\x00\x00\x09\x01V>:\xb5\xd3\xd6vLa\xef\xb9\x93\x02\xbd[_\x0c:\x91" +
		"\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x05" +
		"\x06" + strings.Repeat("\x00", 30) + "\x07" + "\x01\x01k\x05value"
	sum := sha256.Sum256([]byte(want))
	if want += string(sum[:]); string(got) != want {
		t.Errorf("a frame is\n%q, want\n%q", got, want)
	}
}

func TestOps(t *testing.T) {
	payload := AppendSet(nil, []byte("a"), bytes.Repeat([]byte("v"), 200))
	payload = append(payload, "\x00\x01b\x0f\x01c\x01d"...)
	var got []string
	for op, err := range Ops(payload) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%d %s %d", op.Kind, op.Key, len(op.Value)))
	}
	if fmt.Sprint(got) != "[1 a 200 0 b 0 15 c 1]" {
		t.Errorf("operations %q", got)
	}
	for _, bad := range []string{"\x02\x01a", "\x01\x00\x01v", "\x01\x01a", "\x00\x05a", "\x01\x01a\xff", "\x0f\x01a\x02b", "\x00"} {
		last := error(nil)
		for _, err := range Ops([]byte(bad)) {
			last = err
		}
		if last == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestNames(t *testing.T) {
	names := []string{
		"0000000000000400.base.00000", "0000000000000400.base.00001.end", "0000000000000400.records.0000000000000351",
		"0000000000000450.records.0000000000000401",
	}
	for _, s := range names {
		if n, ok := ParseName(s); !ok || n.String() != s {
			t.Errorf("%s was read as %+v, %v", s, n, ok)
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("names do not sort by their last record: %q", names)
	}
	for _, s := range []string{
		"", "LOCK", "400.base.0", "0000000000000400.base.00000.tmp", "0000000000000400.records.0000000000000401",
		"0000000000000400.records.0000000000000000", "0000000000000400.other.00000", "0000000000000400.base.00000.end.end",
	} {
		if n, ok := ParseName(s); ok {
			t.Errorf("%q was read as %+v", s, n)
		}
	}
}

// FuzzNext has arbitrary bytes in the place of a frame.
func FuzzNext(f *testing.F) {
	for _, b := range history(2) {
		f.Add(b)
	}
	p := start()
	f.Add(base(&p, 1, 0)[0])
	f.Fuzz(func(t *testing.T, b []byte) {
		p := start()
		if fr, rest, err := p.Next(b); err == nil {
			again := encode(&fr.Header, fr.Payload)
			if !bytes.Equal(again, b[:len(b)-len(rest)]) || p.Number != 1 {
				t.Fatalf("%q came back as %q, at %+v", b, again, p)
			}
		}
		_, _ = NewBase(0).Next(b)
		n := 0
		for op, err := range Ops(b) {
			if n += len(op.Key) + len(op.Value); err != nil {
				break
			}
		}
		if n > len(b) {
			t.Fatalf("%q has %d bytes of operations", b, n)
		}
		if n, ok := ParseName(string(b)); ok && n.String() != string(b) {
			t.Fatalf("%q was read as %+v", b, n)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	payload := make([]byte, 4<<10)
	dst := make([]byte, Size(len(payload)))
	p := start()
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		h := p.Header(1, 1)
		Encode(dst, &h, payload)
	}
}

// TestReadFindsTheEndOfEachFrame reads a history from a stream that is cut off at each byte.
func TestReadFindsTheEndOfEachFrame(t *testing.T) {
	frames := history(3)
	whole := slices.Concat(frames...)
	for cut := range len(whole) + 1 {
		r, left := iotest.OneByteReader(bytes.NewReader(whole[:cut])), cut
		for i := 0; ; i++ {
			b, err := Read(r)
			if left == 0 {
				if err != io.EOF {
					t.Fatalf("%d bytes, frame %d: %v, want io.EOF", cut, i+1, err)
				}
				break
			}
			want := frames[i][:min(left, len(frames[i]))]
			if err != nil || !bytes.Equal(b, want) {
				t.Fatalf("%d bytes, frame %d has %d bytes, want %d: %v", cut, i+1, len(b), len(want), err)
			}
			left -= len(want)
		}
	}
	failed := errors.New("by the test")
	for cut := range len(frames[0]) {
		r := io.MultiReader(bytes.NewReader(whole[:cut]), iotest.ErrReader(failed))
		if b, err := Read(r); !errors.Is(err, failed) {
			t.Errorf("%d bytes and an error: %d bytes, %v", cut, len(b), err)
		}
	}
	damaged := bytes.Clone(frames[0])
	damaged[5] ^= 0x80 // of its length
	if b, err := Read(bytes.NewReader(damaged)); err != nil || len(b) > len(damaged) {
		t.Errorf("a damaged length: %d bytes, %v", len(b), err)
	}
}

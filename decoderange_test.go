package dohost_test

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
)

type (
	narrow   int8
	wideLine struct {
		Name  string
		Cents int64
	}
	line struct {
		Name  string
		Cents int16
	}
	wideOrder struct {
		ID    string
		Lines []wideLine
		Seen  map[string]int
		At    time.Time
		Raw   []byte
		New   float64
	}
	lineOrder struct {
		Seen  map[string]uint8
		Lines []*line
		ID    string
		At    time.Time
		Raw   []byte
	}
	wideBase       struct{ Total int }
	narrowEmbedded struct {
		NarrowBase
		More *narrowEmbedded
	}
	NarrowBase struct{ Total int32 }
	renamed    struct {
		Count uint16 `msgpack:"Total"`
	}
	wideLong struct{ TotalOfAllLinesOfTheOrderInCents int64 } // a name of 32 bytes has a longer header
	long     struct{ TotalOfAllLinesOfTheOrderInCents int16 }
)

// stored puts a value and reads it as a T.
func stored[T any](t *testing.T, ctx context.Context, s *dohost.Storage, v any, want string) {
	t.Helper()
	if err := dohost.Put(ctx, s, "key", v); err != nil {
		t.Fatal(err)
	}
	got, ok, err := dohost.Get[T](ctx, s, "key")
	switch {
	case want == "" && (err != nil || !ok || fmt.Sprint(got) != fmt.Sprint(v)):
		t.Errorf("%v (%T) as %T: %v, %v, %v", v, v, got, got, ok, err)
	case want != "" && (err == nil || ok || !reflect.ValueOf(got).IsZero() || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"key"`)):
		t.Errorf("%v (%T) as %T: %v, %v, error %v; want one with %q and the key", v, v, got, got, ok, err, want)
	}
}

func TestDecodeRefusesNumbersThatDoNotFit(t *testing.T) {
	inStore(t, func(ctx context.Context, s *dohost.Storage) {
		stored[int32](t, ctx, s, int64(5_000_000_000), "5000000000 does not fit int32")
		stored[int32](t, ctx, s, math.MinInt32-1, "-2147483649 does not fit int32")
		stored[uint64](t, ctx, s, -1, "-1 does not fit uint64")
		stored[int64](t, ctx, s, uint64(math.MaxUint64), "18446744073709551615 does not fit int64")
		stored[int](t, ctx, s, uint64(1<<63), "9223372036854775808 does not fit int")
		stored[int8](t, ctx, s, 128, "128 does not fit int8")
		stored[narrow](t, ctx, s, -129, "-129 does not fit dohost_test.narrow")
		stored[uint8](t, ctx, s, 256, "256 does not fit uint8")
		stored[uint16](t, ctx, s, 1<<16, "65536 does not fit uint16")
		stored[time.Duration](t, ctx, s, uint64(1<<63), "does not fit time.Duration")
		stored[float64](t, ctx, s, 1<<53+1, "9007199254740993 does not fit float64")
		stored[float64](t, ctx, s, uint64(math.MaxUint64), "does not fit float64")
		stored[float64](t, ctx, s, math.MaxInt64, "does not fit float64")
		stored[float32](t, ctx, s, 1<<24+1, "16777217 does not fit float32")
		stored[int64](t, ctx, s, 2.75, "decoding int64")

		big := wideOrder{ID: "o", Lines: []wideLine{{"a", 1}, {"b", 100_000}}, At: time.Unix(1e9, 5), Raw: []byte{0xd2, 0xff}}
		stored[lineOrder](t, ctx, s, big, "Lines[1].Cents: 100000 does not fit int16")
		big.Lines, big.Seen = nil, map[string]int{"x": 1, "y": 256}
		stored[lineOrder](t, ctx, s, big, `Seen["y"]: 256 does not fit uint8`)
		stored[[]lineOrder](t, ctx, s, []wideOrder{{}, big}, `[1].Seen["y"]: 256 does not fit uint8`)
		stored[map[int8]string](t, ctx, s, map[int]string{300: "x"}, "[a key]: 300 does not fit int8")
		stored[map[string]map[string][2]uint16](t, ctx, s, map[string]any{"a": map[string]any{"b": []int{1, -1}}}, `["a"]["b"][1]: -1 does not fit uint16`)
		stored[narrowEmbedded](t, ctx, s, wideBase{1 << 40}, "Total: 1099511627776 does not fit int32")
		stored[narrowEmbedded](t, ctx, s, map[string]any{"More": map[string]any{"More": map[string]any{"Total": 1 << 40}}}, "More.More.Total: 1099511627776 does not fit int32")
		stored[long](t, ctx, s, wideLong{1 << 15}, "TotalOfAllLinesOfTheOrderInCents: 32768 does not fit int16")
		stored[renamed](t, ctx, s, wideBase{-1}, "Total: -1 does not fit uint16")
		stored[*line](t, ctx, s, wideLine{"a", -32_769}, "Cents: -32769 does not fit int16")
	})
}

// TestDecodeAcceptsNumbersThatFit writes the limits of each type as a wider type.
func TestDecodeAcceptsNumbersThatFit(t *testing.T) {
	inStore(t, func(ctx context.Context, s *dohost.Storage) {
		for _, n := range []int64{math.MinInt8, -1, 0, 31, 32, math.MaxInt8} {
			stored[int8](t, ctx, s, n, "")
			stored[[]narrow](t, ctx, s, []int64{n}, "")
			stored[map[string]float32](t, ctx, s, map[string]int64{"n": n}, "")
		}
		for _, n := range []int64{math.MinInt16, math.MaxInt16} {
			stored[int16](t, ctx, s, n, "")
		}
		for _, n := range []int64{math.MinInt32, math.MaxInt32} {
			stored[int32](t, ctx, s, n, "")
			stored[int](t, ctx, s, n, "")
		}
		for _, n := range []int64{math.MinInt64, math.MaxInt64} {
			stored[int64](t, ctx, s, n, "")
		}
		for _, n := range []int64{0, 127, 128, 255, 256, 1<<16 - 1, 1 << 16, 1<<32 - 1, 1 << 32, math.MaxInt64} { // at the limits of each encoding
			stored[int](t, ctx, s, uint64(n), "")
			stored[int64](t, ctx, s, uint64(n), "")
			stored[int](t, ctx, s, n, "")
			stored[int64](t, ctx, s, -n-1, "")
			stored[int](t, ctx, s, -n-1, "")
		}
		stored[uint8](t, ctx, s, math.MaxUint8, "")
		stored[uint16](t, ctx, s, math.MaxUint16, "")
		stored[uint32](t, ctx, s, math.MaxUint32, "")
		stored[uint64](t, ctx, s, uint64(math.MaxUint64), "")
		stored[float64](t, ctx, s, 2.5, "")
		stored[any](t, ctx, s, "text", "")
		// Fields that the type no longer has are skipped, with any value.
		old := wideOrder{ID: "o", Lines: []wideLine{{"a", 1}}, At: time.Unix(1e9, 5), Raw: []byte{0xcf}, New: 1e300}
		if err := dohost.Put(ctx, s, "old", map[string]any{"Gone": []any{uint64(math.MaxUint64), nil, 1.5, "x", map[string]int{"y": 1}}, "ID": "o"}); err != nil {
			t.Fatal(err)
		}
		if v, ok, err := dohost.Get[lineOrder](ctx, s, "old"); v.ID != "o" || !ok || err != nil {
			t.Errorf("%v, %v, %v", v, ok, err)
		}
		stored[wideOrder](t, ctx, s, old, "")
	})
}

// TestDecodeRefusesNumbersInCollectionsAndFeeds reads a number that does not fit from a collection,
// from a feed and from a list of keys.
func TestDecodeRefusesNumbersInCollectionsAndFeeds(t *testing.T) {
	feed := &dohost.Feed{Name: "lines", Values: true}
	was := dohost.Collection[wideLine]{Name: "lines", Key: func(l wideLine) string { return l.Name }, Feed: feed}
	is := dohost.Collection[line]{Name: "lines", Key: func(l line) string { return l.Name }, Feed: feed}
	const want = "Cents: 100000 does not fit int16"
	inStore(t, func(ctx context.Context, s *dohost.Storage) {
		refused := func(what, also string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), also) {
				t.Errorf("%s: error %v; want one with %q and %s", what, err, want, also)
			}
		}
		if err := was.Put(ctx, s, wideLine{"a", 100_000}); err != nil {
			t.Fatal(err)
		}
		_, _, err := is.Get(ctx, s, "a")
		refused("Get", `row "a"`, err)
		_, err = is.List(ctx, s, nil)
		refused("List", `row "a"`, err)
		changes, err := feed.Read(ctx, s, dohost.Position{}, 0)
		if err != nil || len(changes) != 1 {
			t.Fatal(changes, err)
		}
		_, _, err = is.Value(changes[0])
		refused("Value", `row "a"`, err)
		if err := dohost.Put(ctx, s, "k", wideLine{"a", 100_000}); err != nil {
			t.Fatal(err)
		}
		_, err = dohost.List[line](ctx, s, nil)
		refused("List of keys", `key "k"`, err)
	})
}

// BenchmarkDecode reads a row of a few fields.
func BenchmarkDecode(b *testing.B) {
	h, err := dohost.Open(b.TempDir(), nil, dohost.Bind(shops, func(_ context.Context, st *dohost.State) (*shop, error) {
		return &shop{store: st.Storage()}, nil
	}, nil))
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	err = shops.Get(h, "x").Do(b.Context(), func(ctx context.Context, s *shop) error {
		v := order{ID: "o1", Status: "paid", Cents: 1999, Tags: []string{"a", "b"}}
		if err := dohost.Put(ctx, s.store, "k", v); err != nil {
			return err
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := dohost.Get[order](ctx, s.store, "k"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

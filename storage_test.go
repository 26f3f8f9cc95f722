package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/dohost/dohost/runtime"
)

// inStore runs fns as events of one object, one after the other.
func inStore(t *testing.T, fns ...func(ctx context.Context, s *dohost.Storage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil, dohost.Bind(shops, func(_ context.Context, st *dohost.State) (*shop, error) {
			return &shop{st.Storage()}, nil
		}, nil))
		for _, fn := range fns {
			err := shops.Get(h, "x").Do(t.Context(), func(ctx context.Context, s *shop) error {
				fn(ctx, s.store)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// keysOf joins the keys of a storage.
func keysOf(t *testing.T, ctx context.Context, s *dohost.Storage) string {
	t.Helper()
	var keys []string
	for it, err := range dohost.All[any](ctx, s, nil) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, it.Key)
	}
	return strings.Join(keys, " ")
}

func TestPutManyWritesAllOrNothing(t *testing.T) {
	large := map[string]any{"a": "new"}
	for i := range 9 {
		large[fmt.Sprint("b", i)] = strings.Repeat("x", 2<<20-16)
	}
	for _, c := range []struct {
		name   string
		values map[string]any
		what   string // of the LimitError; empty for another
	}{
		{"empty key", map[string]any{"": 1, "a": "new", "b": 2}, "key"},
		{"long key", map[string]any{"a": "new", "b": 2, strings.Repeat("c", 2049): 3}, "key"},
		{"large value", map[string]any{"a": "new", "b": 2, "c": strings.Repeat("x", 2<<20)}, "value"},
		{"large batch", large, "batch"},
		{"no value", map[string]any{"a": "new", "b": 2, "c": func() {}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			inStore(t, func(ctx context.Context, s *dohost.Storage) {
				if err := dohost.PutMany(ctx, s, map[string]string{"a": "old", "z": "old"}); err != nil {
					t.Fatal(err)
				}
				err := dohost.PutMany(ctx, s, c.values)
				limit, ok := errors.AsType[*dohost.LimitError](err)
				if err == nil || ok != (c.what != "") || ok && limit.Subject != c.what {
					t.Errorf("error %v, want a limit of %q", err, c.what)
				}
			}, func(ctx context.Context, s *dohost.Storage) {
				if keys := keysOf(t, ctx, s); keys != "a z" {
					t.Errorf("keys %q are there, want a and z", keys)
				}
				if v, _, err := dohost.Get[string](ctx, s, "a"); err != nil || v != "old" {
					t.Errorf("a is %q, %v", v, err)
				}
			})
		})
	}
}

func TestDeleteManyRemovesAllOrNothing(t *testing.T) {
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprintf("%02d%s", i, strings.Repeat("k", 2000)))
	}
	inStore(t, func(ctx context.Context, s *dohost.Storage) {
		for _, k := range keys {
			if err := dohost.Put(ctx, s, k, 1); err != nil {
				t.Fatal(err)
			}
		}
	}, func(ctx context.Context, s *dohost.Storage) {
		// Leaves room in the batch for some of the keys.
		for i := range 8 {
			size := 2<<20 - 16
			if i == 7 {
				size -= 10 << 10
			}
			if err := dohost.Put(ctx, s, fmt.Sprint("x", i), strings.Repeat("x", size)); err != nil {
				t.Fatal(err)
			}
		}
		if existed, err := s.Delete(ctx, keys[0]); err != nil || !existed {
			t.Fatalf("there is no room for one key: %v, %v", existed, err)
		}
		n, err := s.DeleteMany(ctx, keys[1:]...)
		if limit, ok := errors.AsType[*dohost.LimitError](err); !ok || limit.Subject != "batch" || n != 0 {
			t.Errorf("removed %d, %v", n, err)
		}
	}, func(ctx context.Context, s *dohost.Storage) {
		n, err := s.DeleteMany(ctx, append(keys, keys[1])...)
		if err != nil || n != 19 {
			t.Errorf("removed %d, %v; want the 19 that were there", n, err)
		}
	})
}

// recordedValue is a value that records its encoding and decoding.
type recordedValue struct {
	name string
	seen *[]string
}

// decoded records the noted values that were decoded.
var decoded []string

func (n recordedValue) EncodeMsgpack(e *msgpack.Encoder) error {
	*n.seen = append(*n.seen, n.name)
	return e.EncodeString(n.name)
}

func (n *recordedValue) DecodeMsgpack(d *msgpack.Decoder) (err error) {
	n.name, err = d.DecodeString()
	decoded = append(decoded, n.name)
	return err
}

func TestPutManyAndGetManyUseAFixedOrder(t *testing.T) {
	inStore(t, func(ctx context.Context, s *dohost.Storage) {
		var seen, names []string
		values := map[string]recordedValue{}
		for i := range 26 {
			name := string(rune('z' - i))
			names = append(names, name)
			values[name] = recordedValue{name, &seen}
		}
		if err := dohost.PutMany(ctx, s, values); err != nil || !slices.IsSorted(seen) || len(seen) != len(names) {
			t.Errorf("wrote %v, %v", seen, err)
		}
		decoded = nil
		found, err := dohost.GetMany[recordedValue](ctx, s, append(names, "none")...)
		if err != nil || len(found) != len(names) || !slices.Equal(decoded, names) {
			t.Errorf("read %v, %v; want %v", decoded, err, names)
		}
	})
}

func TestPutManyReportsTheLimitInKeys(t *testing.T) {
	inStore(t, func(ctx context.Context, s *dohost.Storage) {
		values, names := map[string]int{}, []string{}
		for i := range 129 {
			values[fmt.Sprint(i)] = i
			names = append(names, fmt.Sprint(i))
		}
		_, getErr := dohost.GetMany[int](ctx, s, names...)
		_, deleteErr := s.DeleteMany(ctx, names...)
		for _, err := range []error{dohost.PutMany(ctx, s, values), getErr, deleteErr} {
			if limit, ok := errors.AsType[*dohost.LimitError](err); !ok || limit.Size != 129 || limit.Limit != 128 || err.Error() != "dohost: operation has 129 keys, the limit is 128" {
				t.Errorf("129 keys: %v", err)
			}
		}
		delete(values, "0")
		if err := dohost.PutMany(ctx, s, values); err != nil {
			t.Errorf("128 keys: %v", err)
		}
	})
}

func TestPutManyAndDeleteManyRequireTheTurn(t *testing.T) {
	inStore(t, func(ctx context.Context, s *dohost.Storage) {
		err := dohost.Await(ctx, func(ctx context.Context) error {
			if err := dohost.PutMany(ctx, s, map[string]int{"a": 1}); !errors.Is(err, runtime.ErrNoTurn) {
				t.Errorf("PutMany: %v", err)
			}
			if _, err := s.DeleteMany(ctx, "a"); !errors.Is(err, runtime.ErrNoTurn) {
				t.Errorf("DeleteMany: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestGetReturnsValuesOwnedByTheCaller reads values one after the other. All encodings use the same buffer.
func TestGetReturnsValuesOwnedByTheCaller(t *testing.T) {
	inStore(t, func(ctx context.Context, s *dohost.Storage) {
		for key, v := range map[string]string{"a": "the first", "b": "THE LAST!"} {
			if err := errors.Join(dohost.Put(ctx, s, key, v), dohost.Put(ctx, s, key+" bytes", []byte(v))); err != nil {
				t.Fatal(err)
			}
		}
	}, func(ctx context.Context, s *dohost.Storage) {
		raw, _, err := dohost.Get[msgpack.RawMessage](ctx, s, "a")
		if err != nil {
			t.Fatal(err)
		}
		bytes, _, err := dohost.Get[[]byte](ctx, s, "a bytes")
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"b", "b bytes"} {
			if _, _, err := dohost.Get[any](ctx, s, key); err != nil {
				t.Fatal(err)
			}
		}
		if string(raw[1:]) != "the first" || string(bytes) != "the first" {
			t.Errorf("%q and %q after others were read", raw, bytes)
		}
	})
}

// tagged changes settings of the encoder for its own encoding only.
type tagged struct{ N int }

// EncodeMsgpack encodes the number.
func (g tagged) EncodeMsgpack(e *msgpack.Encoder) error {
	e.SetCustomStructTag("json")
	e.SetOmitEmpty(true)
	e.UseArrayEncodedStructs(true)
	e.UseCompactInts(false)
	return e.EncodeInt(int64(g.N))
}

// DecodeMsgpack decodes the number.
func (g *tagged) DecodeMsgpack(d *msgpack.Decoder) (err error) {
	d.SetCustomStructTag("json")
	g.N, err = d.DecodeInt()
	return err
}

// TestPutEncodesEachValueIndependently writes a value that changes settings, and then another.
func TestPutEncodesEachValueIndependently(t *testing.T) {
	type plain struct {
		Foo int `json:"foo"`
	}
	inStore(t, func(ctx context.Context, s *dohost.Storage) {
		for i := range 100 { // with any encoder
			key := fmt.Sprint(i)
			if err := errors.Join(dohost.Put(ctx, s, key, tagged{i}), dohost.Put(ctx, s, key+" plain", plain{i})); err != nil {
				t.Fatal(err)
			}
			g, _, err := dohost.Get[tagged](ctx, s, key)
			p, _, perr := dohost.Get[plain](ctx, s, key+" plain")
			if err != nil || perr != nil || g.N != i || p.Foo != i {
				t.Fatalf("%v, %v; %v, %v; want %d", g, err, p, perr, i)
			}
			raw, _, err := dohost.Get[msgpack.RawMessage](ctx, s, key+" plain")
			if want := append([]byte("\x81\xa3Foo"), byte(i)); err != nil || string(raw) != string(want) {
				t.Fatalf("%x, %v; want %x", raw, err, want)
			}
		}
	})
}

package dohost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/objectstore"
)

type order struct {
	ID, Status string
	Cents      int
	Tags       []string
}

var session = dohost.Feed{Name: "session", Keep: 100}

var orders = dohost.Collection[order]{
	Name: "orders",
	Key:  func(o order) string { return o.ID },
	Indexes: []dohost.Index[order]{
		{Name: "status", Of: func(o order) dohost.Key { return dohost.KeyOf(o.Status) + dohost.KeyOf(o.Cents) }},
		{Name: "tag", Each: func(o order) (keys []dohost.Key) {
			for _, t := range o.Tags {
				keys = append(keys, dohost.KeyOf(t))
			}
			return keys
		}},
		{Name: "paid", Of: func(o order) dohost.Key {
			if o.Status != "paid" {
				return ""
			}
			return dohost.KeyOf(o.ID)
		}},
		{
			Name: "both",
			Of:   func(o order) dohost.Key { return dohost.KeyOf(o.ID) },
			Each: func(o order) []dohost.Key { return []dohost.Key{dohost.KeyOf(o.Status)} },
		},
	},
	Feed: &session,
}

var notes = dohost.Collection[string]{Name: "notes", Key: func(s string) string { return s }, Feed: &session}

// shop is an object with collections and no code of its own.
type shop struct{ store *dohost.Storage }

const shops dohost.Namespace[shop] = "shop"

// inShop runs fn as an event of an object with a few orders.
func inShop(t *testing.T, fn func(t *testing.T, ctx context.Context, s *dohost.Storage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil, dohost.Bind(shops, func(_ context.Context, st *dohost.State) (*shop, error) {
			return &shop{st.Storage()}, nil
		}, nil))
		err := shops.Get(h, "x").Do(t.Context(), func(ctx context.Context, s *shop) error {
			for _, o := range []order{
				{"a", "open", 500, []string{"new", "gift"}},
				{"b", "paid", 20, []string{"gift", "gift"}},
				{"c", "open", -3, nil},
				{"d", "open", 1000, []string{"new"}},
			} {
				if err := orders.Insert(ctx, s.store, o); err != nil {
					return err
				}
			}
			fn(t, ctx, s.store)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// idsOf joins the keys of rows.
func idsOf[T any](rows []dohost.Row[T]) string {
	var ids strings.Builder
	for _, r := range rows {
		ids.WriteString(r.Key)
	}
	return ids.String()
}

func TestCollectionQueries(t *testing.T) {
	inShop(t, func(t *testing.T, ctx context.Context, s *dohost.Storage) {
		open, paid := dohost.KeyOf("open"), dohost.KeyOf("paid")
		for _, c := range []struct {
			name string
			q    *dohost.Query[order]
			want string
		}{
			{"all", nil, "abcd"},
			{"key", &dohost.Query[order]{Equal: "b"}, "b"},
			{"keys, back", &dohost.Query[order]{Start: "b", End: "d", Reverse: true}, "cb"},
			{"index", &dohost.Query[order]{Index: "status"}, "cadb"},
			{"first part", &dohost.Query[order]{Index: "status", Prefix: open}, "cad"},
			{"string prefix", &dohost.Query[order]{Index: "status", Prefix: dohost.KeyPrefix("pa")}, "b"},
			{"both parts", &dohost.Query[order]{Index: "status", Equal: paid + dohost.KeyOf(20)}, "b"},
			{"range of the second part", &dohost.Query[order]{
				Index: "status", Start: open + dohost.KeyOf(0), End: open + dohost.KeyOf(1000),
			}, "a"},
			{"and its end", &dohost.Query[order]{
				Index: "status", Start: open + dohost.KeyOf(0), End: (open + dohost.KeyOf(1000)).PrefixEnd(),
			}, "ad"},
			{"limit", &dohost.Query[order]{Index: "status", Limit: 2}, "ca"},
			{"several places", &dohost.Query[order]{Index: "tag"}, "abad"},
			{"one place", &dohost.Query[order]{Index: "tag", Equal: dohost.KeyOf("gift"), Reverse: true}, "ba"},
			{"one place and several", &dohost.Query[order]{Index: "both"}, "abcdacdb"},
			{"some rows", &dohost.Query[order]{Index: "paid"}, "b"},
			{"where", &dohost.Query[order]{Where: func(o order) bool { return o.Cents < 100 }, Limit: 2}, "bc"},
		} {
			rows, err := orders.List(ctx, s, c.q)
			if got := idsOf(rows); err != nil || got != c.want {
				t.Errorf("%s: %s, %v; want %s", c.name, got, err, c.want)
			}
			if n, err := orders.Count(ctx, s, c.q); err != nil || n != len(c.want) {
				t.Errorf("%s: counted %d, %v; want %d", c.name, n, err, len(c.want))
			}
		}
		for _, q := range []dohost.Query[order]{{Index: "none"}, {Limit: -1}, {Equal: "a", Prefix: "a"}, {Equal: "a", Start: "a"}, {Equal: "a", End: "a"}} {
			_, listErr := orders.List(ctx, s, &q)
			_, countErr := orders.Count(ctx, s, &q)
			if !errors.Is(listErr, dohost.ErrMisuse) || !errors.Is(countErr, dohost.ErrMisuse) {
				t.Errorf("%+v: %v, %v", q, listErr, countErr)
			}
		}
	})
}

// TestCollectionPages continues from a cursor that was encoded as JSON, after rows were inserted and deleted.
func TestCollectionPages(t *testing.T) {
	inShop(t, func(t *testing.T, ctx context.Context, s *dohost.Storage) {
		q := dohost.Query[order]{Index: "status", Limit: 2}
		rows, err := orders.List(ctx, s, &q)
		if err != nil || idsOf(rows) != "ca" {
			t.Fatalf("first page %s, %v", idsOf(rows), err)
		}
		text, err := json.Marshal(rows[1].Cursor)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &q.After); err != nil {
			t.Fatal(err)
		}
		if _, err := orders.Delete(ctx, s, "a"); err != nil {
			t.Fatal(err)
		}
		if err := orders.Insert(ctx, s, order{ID: "e", Status: "open", Cents: 600}); err != nil {
			t.Fatal(err)
		}
		if rows, err = orders.List(ctx, s, &q); err != nil || idsOf(rows) != "ed" {
			t.Errorf("second page %s, %v; want ed", idsOf(rows), err)
		}
		if err := json.Unmarshal([]byte(`"!"`), &q.After); err == nil {
			t.Error("any text is a cursor")
		}
	})
}

func TestCollectionWrites(t *testing.T) {
	inShop(t, func(t *testing.T, ctx context.Context, s *dohost.Storage) {
		pay := func(o *order) error { o.Status = "paid"; return nil }
		is := func(err, want error) {
			t.Helper()
			if !errors.Is(err, want) {
				t.Errorf("got %v; want %v", err, want)
			}
		}
		is(orders.Insert(ctx, s, order{ID: "a"}), objectstore.ErrRowExists)
		row, err := orders.Update(ctx, s, "a", pay)
		if err != nil || row.Version != 2 || row.Value.Status != "paid" || row.Value.Cents != 500 {
			t.Errorf("updated to %+v, %v", row, err)
		}
		_, err = orders.UpdateIf(ctx, s, "a", 1, pay)
		is(err, objectstore.ErrConflict)
		if e, ok := errors.AsType[*dohost.RowError](err); !ok || e.Collection != "orders" || e.Key != "a" || e.Expected != 1 || e.Actual != 2 {
			t.Errorf("conflict %+v", e)
		}
		if row, err = orders.UpdateIf(ctx, s, "a", 2, pay); err != nil || row.Version != 3 {
			t.Errorf("updated to %+v, %v", row, err)
		}
		_, err = orders.Update(ctx, s, "none", pay)
		is(err, objectstore.ErrNoRow)
		_, err = orders.Update(ctx, s, "a", func(*order) error { return errNo })
		is(err, errNo)
		_, err = orders.Update(ctx, s, "a", func(o *order) error { o.ID = "b"; return nil })
		is(err, dohost.ErrMisuse)
		_, err = orders.Update(ctx, s, "a", func(o *order) error { return orders.Put(ctx, s, *o) })
		is(err, objectstore.ErrConflict)
		is(orders.DeleteIf(ctx, s, "a", 3), objectstore.ErrConflict)
		is(orders.DeleteIf(ctx, s, "a", 4), nil)
		is(orders.DeleteIf(ctx, s, "a", 4), objectstore.ErrNoRow)
		is(orders.DeleteIf(ctx, s, "b", 0), objectstore.ErrConflict)
		if existed, err := orders.Delete(ctx, s, "a"); existed || err != nil {
			t.Errorf("deleted again: %v, %v", existed, err)
		}
		if row, ok, err := orders.Get(ctx, s, "b"); !ok || err != nil || row.Version != 1 || row.Value.Cents != 20 {
			t.Errorf("b is %+v, %v, %v", row, ok, err)
		}
		if rows, err := orders.List(ctx, s, &dohost.Query[order]{Index: "paid"}); err != nil || idsOf(rows) != "b" {
			t.Errorf("paid are %s, %v", idsOf(rows), err)
		}
		is((&dohost.Collection[order]{Name: "keyless"}).Put(ctx, s, order{}), dohost.ErrMisuse)
		var bad *dohost.NameError
		if err := (&dohost.Collection[order]{Key: orders.Key}).Put(ctx, s, order{ID: "a"}); !errors.As(err, &bad) {
			t.Errorf("a collection without a name: %v", err)
		}
	})
}

// TestCollectionEnsure inserts a row that is stored: an equal one with a time in another zone and a map, and different ones.
func TestCollectionEnsure(t *testing.T) {
	type stamped struct {
		ID   string
		At   time.Time
		Tags map[string]int
	}
	stamps := dohost.Collection[stamped]{Name: "stamps", Key: func(s stamped) string { return s.ID }}
	inShop(t, func(t *testing.T, ctx context.Context, s *dohost.Storage) {
		v := stamped{"a", time.Now().In(time.FixedZone("far", 3600)), map[string]int{"x": 1, "y": 2, "z": 3}}
		for i := range 20 { // the order of the map in the encoding varies
			if inserted, err := stamps.Ensure(ctx, s, v); inserted != (i == 0) || err != nil {
				t.Fatal(i, inserted, err)
			}
		}
		for _, other := range []stamped{{"a", v.At.Add(1), v.Tags}, {"a", v.At, map[string]int{"x": 1}}, {ID: "a"}} {
			if inserted, err := stamps.Ensure(ctx, s, other); inserted || !errors.Is(err, dohost.ErrConflict) {
				t.Errorf("%+v: %t, %v", other, inserted, err)
			}
		}
		if row, _, err := stamps.Get(ctx, s, "a"); row.Version != 1 || !row.Value.At.Equal(v.At) || err != nil {
			t.Errorf("the row is %+v, %v", row, err)
		}
		type measure struct {
			ID    string
			Value float64
		}
		measures := dohost.Collection[measure]{Name: "stamps", Key: func(m measure) string { return m.ID }}
		for i := range 2 { // a NaN is not equal to itself
			if inserted, err := measures.Ensure(ctx, s, measure{"b", math.NaN()}); inserted != (i == 0) || err != nil {
				t.Error(i, inserted, err)
			}
		}
		type text struct{ ID, Value string }
		texts := dohost.Collection[text]{Name: "stamps", Key: func(r text) string { return r.ID }}
		_, err := texts.Ensure(ctx, s, text{"b", "c"})
		if err == nil || errors.Is(err, dohost.ErrConflict) || !strings.Contains(err.Error(), `collection "stamps", row "b"`) {
			t.Errorf("a row that does not decode: %v", err)
		}
	})
}

var errNo = errors.New("no")

func TestCollectionWithBlindWrites(t *testing.T) {
	inShop(t, func(t *testing.T, ctx context.Context, s *dohost.Storage) {
		lines := dohost.Collection[order]{Name: "lines", Key: orders.Key, Blind: true}
		put := func(cents int) error { return lines.Put(ctx, s, order{ID: "a", Cents: cents}) }
		has := func(cents int, version uint64) {
			t.Helper()
			row, ok, err := lines.Get(ctx, s, "a")
			if err != nil || !ok || row.Value.Cents != cents || row.Version != version {
				t.Errorf("%+v, %t, %v; want %d cents, version %d", row, ok, err, cents, version)
			}
		}
		if err := errors.Join(lines.Insert(ctx, s, order{ID: "a"}), put(1), put(2)); err != nil {
			t.Fatal(err)
		}
		has(2, 1)
		if err := lines.Insert(ctx, s, order{ID: "a"}); !errors.Is(err, objectstore.ErrRowExists) {
			t.Errorf("inserted over another: %v", err)
		}
		more := func(o *order) error { o.Cents++; return nil }
		if _, err := lines.UpdateIf(ctx, s, "a", 1, more); err != nil {
			t.Error(err)
		}
		has(3, 2)
		if existed, err := lines.Delete(ctx, s, "a"); !existed || err != nil {
			t.Errorf("deleted: %t, %v", existed, err)
		}
		seen := lines
		seen.Feed = &session
		found := lines
		found.Indexes = orders.Indexes
		for _, c := range []dohost.Collection[order]{seen, found} {
			if err := c.Put(ctx, s, order{ID: "b"}); !errors.Is(err, dohost.ErrMisuse) {
				t.Errorf("put blindly: %v", err)
			}
		}
	})
}

func TestFeedOfTwoCollections(t *testing.T) {
	inShop(t, func(t *testing.T, ctx context.Context, s *dohost.Storage) {
		at, err := session.End(ctx, s)
		if err != nil || at.Offset != 4 || at.Log == "" {
			t.Fatalf("ends at %+v, %v", at, err)
		}
		if err := notes.Insert(ctx, s, "hello"); err != nil {
			t.Fatal(err)
		}
		if _, err := orders.Update(ctx, s, "a", func(o *order) error { o.Cents++; return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := orders.Delete(ctx, s, "b"); err != nil {
			t.Fatal(err)
		}
		if err := session.Wait(ctx, s, at); err != nil {
			t.Fatal(err)
		}
		var got []string
		for range 3 {
			changes, err := session.Read(ctx, s, at, 1)
			if err != nil || len(changes) != 1 {
				t.Fatalf("read %v, %v", changes, err)
			}
			c := changes[0]
			note, isNote, err := notes.Value(c)
			if err != nil {
				t.Fatal(err)
			}
			o, isOrder, err := orders.Value(c)
			if err != nil {
				t.Fatal(err)
			}
			if !c.At.Equal(time.Now()) {
				t.Errorf("entry %d is of %v", c.Position.Offset, c.At)
			}
			got = append(got, fmt.Sprintf("%v %s %s %d: note %q %v, order %d %v",
				c.Op, c.Collection, c.Key, c.Version, note, isNote, o.Cents, isOrder))
			at = c.Position
		}
		want := []string{
			`insert notes hello 1: note "hello" true, order 0 false`,
			`update orders a 2: note "" false, order 501 true`,
			`delete orders b 1: note "" false, order 0 false`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("read %q; want %q", got, want)
		}
		if start, err := session.Start(ctx, s); err != nil || start != (dohost.Position{Log: at.Log}) {
			t.Errorf("starts at %+v, %v", start, err)
		}
		if err := s.DeleteAll(ctx); err != nil {
			t.Fatal(err)
		}
		_, err = session.Read(ctx, s, at, 0)
		if e, ok := errors.AsType[*dohost.FeedError](err); !ok || !e.Reset || e.First != (dohost.Position{}) {
			t.Errorf("reading a feed that is gone: %v", err)
		}
	})
}

// TestCollectionOfReservedNameIsNotWritten writes and deletes rows of fibers, with a type of the program. It can read them.
func TestCollectionOfReservedNameIsNotWritten(t *testing.T) {
	inShop(t, func(t *testing.T, ctx context.Context, s *dohost.Storage) {
		fibers := dohost.Collection[string]{Name: "dohost.fibers", Key: func(s string) string { return s }}
		own := dohost.Collection[time.Time]{Name: "dohost.fibers", Key: time.Time.String}
		_, ensured := fibers.Ensure(ctx, s, "a")
		_, deleted := fibers.Delete(ctx, s, "a")
		for name, err := range map[string]error{
			"Put": fibers.Put(ctx, s, "a"), "Insert": own.Insert(ctx, s, time.Now()), "Ensure": ensured,
			"Delete": deleted, "DeleteIf": own.DeleteIf(ctx, s, "a", 1),
		} {
			if !errors.Is(err, dohost.ErrMisuse) || !strings.Contains(err.Error(), `"dohost.fibers"`) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n, err := fibers.Count(ctx, s, nil); n != 0 || err != nil {
			t.Errorf("%d rows, %v", n, err)
		}
	})
}

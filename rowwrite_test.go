package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/dohost/dohost"
)

// page is a row with two kinds of places.
type page struct {
	ID   string
	Tags []string
	Size int
}

var pages = dohost.Collection[page]{
	Name: "pages",
	Key:  func(p page) string { return p.ID },
	Indexes: []dohost.Index[page]{
		{Name: "tag", Each: func(p page) (keys []dohost.Key) {
			for _, tag := range p.Tags {
				keys = append(keys, dohost.KeyOf(tag))
			}
			return keys
		}},
		{Name: "size", Of: func(p page) dohost.Key { return dohost.KeyOf(p.Size) }},
	},
}

// otherPages has other rows in the same collection.
var otherPages = dohost.Collection[struct{ ID, Size string }]{
	Name: "pages",
	Key:  func(p struct{ ID, Size string }) string { return p.ID },
}

type printer struct{ st *dohost.State }

const printers dohost.Namespace[printer] = "printer"

// TestOnRowWrite refuses a row, and writes another key in the batch of a row.
func TestOnRowWrite(t *testing.T) {
	var seen []string
	refused := errors.New("no such size")
	class := dohost.Bind(printers, func(ctx context.Context, st *dohost.State) (*printer, error) {
		return &printer{st}, pages.Put(ctx, st.Storage(), page{ID: "cover", Size: 1})
	}, &dohost.Handlers[printer]{OnRowWrite: func(o *printer, ctx context.Context, w *dohost.RowWrite) error {
		places := fmt.Sprintf("%s %s, constructed %t:", w.Collection, w.Key, o != nil)
		if w.Deleted {
			places += " deleted"
		}
		for key, cursor := range w.Places("tag") {
			places += fmt.Sprintf(" %q %q", key, cursor)
		}
		for key, cursor := range w.FormerPlaces("tag") {
			places += fmt.Sprintf(", formerly %q %q", key, cursor)
		}
		seen = append(seen, places)
		if w.Key == "huge" {
			return refused
		}
		if o == nil {
			return nil
		}
		return dohost.Put(ctx, o.st.Storage(), "last", w.Key)
	}})
	host, err := dohost.Open(t.TempDir(), nil, class)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	err = printers.Get(host, "a").Do(t.Context(), func(ctx context.Context, p *printer) error {
		s := p.st.Storage()
		if err := pages.Insert(ctx, s, page{ID: "huge"}); !errors.Is(err, refused) {
			t.Errorf("a refused row: %v", err)
		}
		if _, ok, _ := pages.Get(ctx, s, "huge"); ok {
			t.Error("a refused row was written")
		}
		before := len(seen)
		if err := pages.Insert(ctx, s, page{ID: "cover"}); !errors.Is(err, dohost.ErrConflict) || len(seen) != before {
			t.Errorf("a row that exists: %v, %q", err, seen)
		}
		rolledBack := errors.New("rolled back")
		err := dohost.Transaction(ctx, func(ctx context.Context) error {
			return errors.Join(pages.Put(ctx, s, page{ID: "draft"}), rolledBack)
		})
		if !errors.Is(err, rolledBack) {
			t.Error(err)
		}
		if last, ok, _ := dohost.Get[string](ctx, s, "last"); ok {
			t.Errorf("the write for a row that was rolled back stays: %q", last)
		}
		err = pages.Put(ctx, s, page{ID: "one", Tags: []string{"red", "blue"}})
		if last, _, _ := dohost.Get[string](ctx, s, "last"); last != "one" {
			t.Errorf("last is %q", last)
		}
		var cursors []string
		rows, err2 := pages.List(ctx, s, &dohost.Query[page]{Index: "tag"})
		for _, row := range rows {
			cursors = append(cursors, fmt.Sprintf("%q", row.Cursor))
		}
		want := fmt.Sprintf("pages one, constructed true: %q %s %q %s", dohost.KeyOf("red"), cursors[1], dohost.KeyOf("blue"), cursors[0])
		if seen[len(seen)-1] != want {
			t.Errorf("%s, want %s", seen[len(seen)-1], want)
		}
		former := fmt.Sprintf(", formerly %q %s, formerly %q %s", dohost.KeyOf("blue"), cursors[0], dohost.KeyOf("red"), cursors[1])
		err4 := pages.Put(ctx, s, page{ID: "one"})
		if want := "pages one, constructed true:" + former; seen[len(seen)-1] != want {
			t.Errorf("an update: %s, want %s", seen[len(seen)-1], want)
		}
		err = errors.Join(err, err4, pages.Put(ctx, s, page{ID: "one", Tags: []string{"red", "blue"}}))
		existed, err3 := pages.Delete(ctx, s, "one")
		if got, want := seen[len(seen)-1], "pages one, constructed true: deleted"+former; !existed || got != want {
			t.Errorf("a deletion: %t, %s, want %s", existed, got, want)
		}
		before = len(seen)
		if existed, err := pages.Delete(ctx, s, "one"); existed || err != nil || len(seen) != before {
			t.Errorf("a deletion of no row: %t, %v, %q", existed, err, seen)
		}
		return errors.Join(err, err2, err3)
	})
	if err != nil || seen[0] != "pages cover, constructed false:" {
		t.Errorf("%v: %q", err, seen)
	}
}

// TestKeysDoNotDecode lists the keys of rows of two types.
func TestKeysDoNotDecode(t *testing.T) {
	class := dohost.Bind(printers, func(_ context.Context, st *dohost.State) (*printer, error) { return &printer{st}, nil }, nil)
	host, err := dohost.Open(t.TempDir(), nil, class)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	err = printers.Get(host, "a").Do(t.Context(), func(ctx context.Context, p *printer) error {
		s := p.st.Storage()
		err := errors.Join(pages.Put(ctx, s, page{ID: "a", Size: 3}), pages.Put(ctx, s, page{ID: "b", Size: 2}),
			otherPages.Put(ctx, s, struct{ ID, Size string }{"c", "large"}), pages.Put(ctx, s, page{ID: "d", Size: 1}))
		keys := func(q *dohost.Query[page]) (found []string) {
			for row, err2 := range pages.Keys(ctx, s, q) {
				err = errors.Join(err, err2)
				found = append(found, row.Key)
			}
			return found
		}
		if got := keys(nil); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
			t.Errorf("keys %q", got)
		}
		if got := keys(&dohost.Query[page]{Index: "size", Limit: 2}); !slices.Equal(got, []string{"d", "b"}) {
			t.Errorf("keys by size %q", got)
		}
		for _, err := range pages.Keys(ctx, s, &dohost.Query[page]{Where: func(page) bool { return true }}) {
			if !errors.Is(err, dohost.ErrMisuse) {
				t.Errorf("a query with Where: %v", err)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

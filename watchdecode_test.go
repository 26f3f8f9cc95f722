package dohost_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/objectstore"
)

// TestWatchReportsARowThatDoesNotDecode has such a row among the first rows, and in a change.
func TestWatchReportsARowThatDoesNotDecode(t *testing.T) {
	for name, late := range map[string]bool{"first rows": false, "change": true} {
		synctest.Test(t, func(t *testing.T) {
			h := storeroom(t, objectstore.NewMemFS(), nil)
			items := itemsWith(0)
			bad := dohost.Collection[string]{Name: "items", Key: func(s string) string { return s }, Feed: items.Feed}
			insert := func(ctx context.Context, s *dohost.Storage) error { return bad.Insert(ctx, s, "broken") }
			if !late {
				inItems(t, h, insert)
			}
			w := watchItems(t, h, items, nil, nil, nil)
			if late {
				inItems(t, h, insert)
			}
			synctest.Wait()
			if w.err == nil || !strings.Contains(w.err.Error(), `collection "items", row "broken"`) {
				t.Errorf("%s: %v; want an error that names the row", name, w.err)
			}
		})
	}
}

// TestWatchListsTheRowsAfterAChangeThatDoesNotDecode continues before changes of a row that has been deleted or replaced
// since, and before one that puts a new row in the place of a row that does not decode.
func TestWatchListsTheRowsAfterAChangeThatDoesNotDecode(t *testing.T) {
	for name, want := range map[string]string{"deleted": "reset enter b ready", "replaced": "reset enter a enter b ready", "before": "reset enter a enter b ready"} {
		synctest.Test(t, func(t *testing.T) {
			h := storeroom(t, objectstore.NewMemFS(), nil)
			items := itemsWith(0)
			bad := &dohost.Collection[string]{Name: "items", Key: func(string) string { return "a" }, Feed: items.Feed}
			inItems(t, h, putItems(items, item{ID: "b"}))
			start := func() dohost.Position {
				w := watchItems(t, h, items, &dohost.Query[item]{Start: "b"}, nil, nil)
				return w.at[len(w.at)-1]
			}
			at := start()
			inItems(t, h, func(ctx context.Context, s *dohost.Storage) error { return bad.Put(ctx, s, "broken") })
			if name == "before" {
				at.Offset++
			}
			inItems(t, h, func(ctx context.Context, s *dohost.Storage) error {
				if name != "deleted" {
					return items.Put(ctx, s, item{ID: "a"})
				}
				_, err := bad.Delete(ctx, s, "a")
				return err
			})
			if w := watchItems(t, h, items, nil, &dohost.WatchOptions{After: at}, nil); w.text() != want || w.err != nil {
				t.Errorf("%s: %s, %v; want %s", name, w.text(), w.err, want)
			}
		})
	}
}

// TestWatchGivesUpAfterChangesThatDoNotDecode inserts and deletes such a row during each list of the rows.
func TestWatchGivesUpAfterChangesThatDoNotDecode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := storeroom(t, objectstore.NewMemFS(), nil)
		items := itemsWith(0)
		bad := &dohost.Collection[string]{Name: "items", Key: func(s string) string { return s }, Feed: items.Feed}
		for n := range 300 { // more than a page
			inItems(t, h, putItems(items, item{ID: fmt.Sprint(n)}))
		}
		resets := 0
		w := watchItems(t, h, items, nil, nil, func(ctx context.Context, s *dohost.Storage, d dohost.Delta[item]) error {
			if d.Kind == dohost.DeltaReset {
				resets++
			}
			if d.Row.Key != "0" {
				return nil
			}
			if err := bad.Insert(ctx, s, "broken"); err != nil {
				return err
			}
			_, err := bad.Delete(ctx, s, "broken")
			return err
		})
		if w.err == nil || !strings.Contains(w.err.Error(), `row "broken"`) || resets != 11 {
			t.Errorf("after %d resets: %v", resets, w.err)
		}
	})
}

package dohost_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
)

// TestIndexKeysMadeByHandAreRefused writes two rows under index keys that were not made
// with KeyOf. Both entries would be "a", 0, "b", 0, "c" on the disk: one entry for two rows.
func TestIndexKeysMadeByHandAreRefused(t *testing.T) {
	type tagged struct {
		ID  string
		Tag dohost.Key
	}
	rows := dohost.Collection[tagged]{
		Name:    "tagged",
		Key:     func(v tagged) string { return v.ID },
		Indexes: []dohost.Index[tagged]{{Name: "tag", Of: func(v tagged) dohost.Key { return v.Tag }}},
	}
	inStore(t, func(ctx context.Context, s *dohost.Storage) {
		for _, v := range []tagged{{"b\x00c", "a"}, {"c", "a\x00b"}, {"d", dohost.KeyPrefix("d")}, {"e", dohost.KeyOf(1)[:5]}, {"f", dohost.KeyOf("f") + "\x00"}} {
			if err := rows.Put(ctx, s, v); !errors.Is(err, dohost.ErrMisuse) || !strings.Contains(err.Error(), `"tagged"`) || !strings.Contains(err.Error(), `"tag"`) {
				t.Errorf("Put under the index key %q: %v; want ErrCollection with the names of the collection and the index", v.Tag, err)
			}
			if _, err := rows.List(ctx, s, &dohost.Query[tagged]{Index: "tag", Equal: v.Tag}); !errors.Is(err, dohost.ErrMisuse) {
				t.Errorf("List with Equal %q: %v; want ErrCollection", v.Tag, err)
			}
		}
		found, err := rows.List(ctx, s, nil)
		if err != nil || len(found) != 0 {
			entries, err2 := rows.Count(ctx, s, &dohost.Query[tagged]{Index: "tag"})
			t.Errorf("rows %v, %v; %d entries in the index, %v; want none", found, err, entries, err2)
		}
		all := dohost.KeyOf("\x00\xff") + dohost.KeyOf("") + dohost.KeyOf("\xff\x00\x00") + dohost.KeyOf(-1) + dohost.KeyOf(0) +
			dohost.KeyOf(2.5) + dohost.KeyOf(false) + dohost.KeyOf(true) + dohost.KeyOf(time.Unix(1, 2)) + dohost.KeyOf("a")
		if err := rows.Put(ctx, s, tagged{"g", all}); err != nil {
			t.Errorf("Put under a key of KeyOf: %v", err)
		}
		if found, err := rows.List(ctx, s, &dohost.Query[tagged]{Index: "tag", Equal: all}); err != nil || len(found) != 1 {
			t.Errorf("List by a key of KeyOf: %v, %v; want its row", found, err)
		}
	})
}

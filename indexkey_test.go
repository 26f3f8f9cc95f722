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

// TestIndexMembershipAgreesWithQueries compares InIndex with the rows that a query by the index returns.
func TestIndexMembershipAgreesWithQueries(t *testing.T) {
	type tagged struct {
		ID    string
		State string
		Tags  []string
	}
	rows := dohost.Collection[tagged]{
		Name: "tagged",
		Key:  func(v tagged) string { return v.ID },
		Indexes: []dohost.Index[tagged]{{
			Name: "both",
			Of: func(v tagged) (k dohost.Key) {
				if v.State != "" {
					k = dohost.KeyOf(v.State)
				}
				return k
			},
			Each: func(v tagged) (keys []dohost.Key) {
				for _, tag := range v.Tags {
					keys = append(keys, dohost.KeyOf("tag")+dohost.KeyOf(tag))
				}
				return keys
			},
		}, {Name: "none", Of: func(tagged) dohost.Key { return "" }}},
	}
	inStore(t, func(ctx context.Context, s *dohost.Storage) {
		values := []tagged{{ID: "a"}, {ID: "b", State: "open"}, {ID: "c", Tags: []string{"x", "y"}}, {ID: "d", State: "open", Tags: []string{"y"}}}
		for _, v := range values {
			if err := rows.Put(ctx, s, v); err != nil {
				t.Fatal(err)
			}
		}
		compared := 0
		for _, prefix := range []dohost.Key{"", dohost.KeyOf("open"), dohost.KeyOf("tag"), dohost.KeyOf("tag") + dohost.KeyOf("x"), dohost.KeyOf("closed")} {
			for _, index := range []string{"both", "none"} {
				found := map[string]bool{}
				for row, err := range rows.All(ctx, s, &dohost.Query[tagged]{Index: index, Prefix: prefix}) {
					if err != nil {
						t.Fatal(err)
					}
					found[row.Key] = true
				}
				for _, v := range values {
					if got := rows.InIndex(v, index, prefix); got != found[v.ID] {
						t.Errorf("InIndex(%s, %s, %q) is %v", v.ID, index, prefix, got)
					}
					compared++
				}
			}
		}
		if compared != 40 || rows.InIndex(values[3], "other", "") {
			t.Errorf("%d comparisons", compared)
		}
	})
}

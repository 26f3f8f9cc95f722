package objectstore

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// modelRow is a row of the model. Its index keys follow from its value: shelf has one, its first letter; words has
// one for each word. Rows of the log have none.
type modelRow struct {
	value   string
	version uint64
}

func entriesOf(name, value string) (es []IndexEntry) {
	if name == "log" {
		return nil
	}
	if value != "" {
		es = append(es, IndexEntry{"shelf", []byte(value[:1])})
	}
	for w := range strings.FieldsSeq(value) {
		es = append(es, IndexEntry{"words", []byte(w)})
	}
	return es
}

// modelChange is an entry of the model's feed.
type modelChange struct {
	op              Op
	collection, key string
	version         uint64
	value, before   string
}

// collectionState is the model of an object: rows by collection and key, and the feed.
type collectionState struct {
	rows   map[string]map[string]modelRow
	feed   []modelChange
	resets int // of the feed
}

func newCollectionState() collectionState {
	return collectionState{rows: map[string]map[string]modelRow{"books": {}, "book": {}, "log": {}}}
}

func (s collectionState) clone() collectionState {
	c := newCollectionState()
	for name, rows := range s.rows {
		c.rows[name] = maps.Clone(rows)
	}
	c.feed, c.resets = slices.Clone(s.feed), s.resets
	return c
}

// place is a row where a query finds it.
type place struct{ at, key string }

// find returns the places that a query selects, by plain search.
func (s collectionState) find(name string, q RowQuery) (found []place) {
	for key, r := range s.rows[name] {
		if q.Index == "" {
			found = append(found, place{key, key})
		}
		for _, e := range entriesOf(name, r.value) {
			if p := (place{string(e.Key), key}); e.Index == q.Index && !slices.Contains(found, p) {
				found = append(found, p)
			}
		}
	}
	found = slices.DeleteFunc(found, func(p place) bool {
		return q.Equal != nil && p.at != string(q.Equal) || !strings.HasPrefix(p.at, string(q.Prefix)) ||
			p.at < string(q.Start) || q.End != nil && p.at >= string(q.End)
	})
	slices.SortFunc(found, func(a, b place) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.key, b.key)) })
	if q.Reverse {
		slices.Reverse(found)
	}
	return found
}

// like reports whether got, as dumped, equals s.
func (s collectionState) like(got collectionState) bool {
	if !reflect.DeepEqual(got.rows, s.rows) || len(got.feed) != len(s.feed) {
		return false
	}
	for i, c := range got.feed {
		c.value, c.before = s.feed[i].value, s.feed[i].before
		if c.op != 0 && c != s.feed[i] {
			return false
		}
	}
	return true
}

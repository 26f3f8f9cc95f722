package dohost_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dohost/dohost"
)

// item is a row of the tests of Watch.
type item struct {
	ID, Shelf string
	N         int
	Tags      []string
	Pad       string
}

func (i item) equal(o item) bool {
	return i.ID == o.ID && i.Shelf == o.Shelf && i.N == o.N && slices.Equal(i.Tags, o.Tags) && i.Pad == o.Pad
}

var itemFeed = dohost.Feed{Name: "items", Values: true, Before: true}

// itemsWith returns the collection of items. keep is the Keep of its feed.
func itemsWith(keep int) *dohost.Collection[item] {
	feed := itemFeed
	feed.Keep = keep
	return &dohost.Collection[item]{
		Name: "items",
		Key:  func(i item) string { return i.ID },
		Indexes: []dohost.Index[item]{
			{Name: "shelf", Of: func(i item) dohost.Key {
				if i.Shelf == "" {
					return ""
				}
				return dohost.KeyOf(i.Shelf) + dohost.KeyOf(i.N)
			}},
			{Name: "tag", Each: func(i item) (keys []dohost.Key) {
				for _, t := range i.Tags {
					keys = append(keys, dohost.KeyOf(t))
				}
				return keys
			}},
		},
		Feed: &feed,
	}
}

// watchQuery is a query, and a model of it: how many places it has for an item.
type watchQuery struct {
	name   string
	q      *dohost.Query[item]
	places func(item) int
}

func one(ok bool) int {
	if ok {
		return 1
	}
	return 0
}

func tagCount(i item, in func(tag string) bool) (n int) {
	tags := slices.Clone(i.Tags)
	slices.Sort(tags)
	for _, t := range slices.Compact(tags) {
		n += one(in(t))
	}
	return n
}

var watchQueries = []watchQuery{
	{"all", nil, func(item) int { return 1 }},
	{"reverse", &dohost.Query[item]{Reverse: true}, func(item) int { return 1 }},
	{"key", &dohost.Query[item]{Equal: "b"}, func(i item) int { return one(i.ID == "b") }},
	{"keys", &dohost.Query[item]{Start: "b", End: "d"}, func(i item) int { return one(i.ID >= "b" && i.ID < "d") }},
	{"after", &dohost.Query[item]{After: "b"}, func(i item) int { return one(i.ID > "b") }},
	{"after in reverse", &dohost.Query[item]{After: "c", Reverse: true}, func(i item) int { return one(i.ID < "c") }},
	{"odd", &dohost.Query[item]{Where: func(i item) bool { return i.N%2 == 1 }}, func(i item) int { return one(i.N%2 == 1) }},
	{"by shelf", &dohost.Query[item]{Index: "shelf"}, func(i item) int { return one(i.Shelf != "") }},
	{"shelf x", &dohost.Query[item]{Index: "shelf", Prefix: dohost.KeyOf("x")}, func(i item) int { return one(i.Shelf == "x") }},
	{"place x 2", &dohost.Query[item]{Index: "shelf", Equal: dohost.KeyOf("x") + dohost.KeyOf(2)}, func(i item) int { return one(i.Shelf == "x" && i.N == 2) }},
	{
		"low odd on x, in reverse",
		&dohost.Query[item]{
			Index: "shelf", Start: dohost.KeyOf("x"), End: dohost.KeyOf("x") + dohost.KeyOf(3), Reverse: true,
			Where: func(i item) bool { return i.N%2 == 1 },
		},
		func(i item) int { return one(i.Shelf == "x" && i.N < 3 && i.N%2 == 1) },
	},
	{"by tag", &dohost.Query[item]{Index: "tag"}, func(i item) int { return tagCount(i, func(string) bool { return true }) }},
	{"tags from n", &dohost.Query[item]{Index: "tag", Start: dohost.KeyOf("n"), Reverse: true}, func(i item) int {
		return tagCount(i, func(t string) bool { return t >= "n" })
	}},
}

// fold is a consumer of a watch: the rows that its deltas make.
type fold struct {
	rows    map[dohost.Cursor]dohost.Row[item]
	at      dohost.Position // of the last delta
	listing bool            // a reset is not yet ready
	resets  int
	deltas  int
	kinds   [dohost.DeltaReady + 1]int
	last    dohost.DeltaKind
}

// apply applies a delta, and returns an error if it is impossible.
func (f *fold) apply(d dohost.Delta[item]) error {
	if f.rows == nil {
		f.rows = map[dohost.Cursor]dohost.Row[item]{}
	}
	f.deltas++
	f.kinds[d.Kind]++
	f.last = d.Kind
	at := d.Row.Cursor
	had, ok := f.rows[at]
	switch d.Kind {
	case dohost.DeltaReset:
		clear(f.rows)
		f.resets++
		f.listing = true
	case dohost.DeltaEnter:
		if ok {
			return fmt.Errorf("%s entered twice: %s, then %s", d.Row.Key, rowText(had), rowText(d.Row))
		}
		f.rows[at] = d.Row
	case dohost.DeltaUpdate:
		was, wasThere := f.rows[d.Was]
		if !wasThere || d.Was != at && ok || was.Key != d.Row.Key || was.Version+1 != d.Row.Version {
			return fmt.Errorf("an update from %s to %s", rowText(was), rowText(d.Row))
		}
		delete(f.rows, d.Was)
		f.rows[at] = d.Row
	case dohost.DeltaExit:
		if !ok || !sameRow(had, d.Row) {
			return fmt.Errorf("an exit of %s, which was %s", rowText(d.Row), rowText(had))
		}
		delete(f.rows, at)
	case dohost.DeltaReady:
		f.listing = false
	default:
		return fmt.Errorf("a delta of kind %v", d.Kind)
	}
	if f.listing && d.At != (dohost.Position{}) {
		return fmt.Errorf("the %v of an incomplete list has the position %v", d.Kind, d.At)
	}
	f.at = d.At
	return nil
}

// list returns the rows in the order of a query.
func (f *fold) list(reverse bool) []dohost.Row[item] {
	var rows []dohost.Row[item]
	for _, row := range f.rows {
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b dohost.Row[item]) int { return strings.Compare(string(a.Cursor), string(b.Cursor)) })
	if reverse {
		slices.Reverse(rows)
	}
	return rows
}

func sameRow(a, b dohost.Row[item]) bool {
	return a.Key == b.Key && a.Cursor == b.Cursor && a.Version == b.Version && a.Value.equal(b.Value)
}

func rowText(r dohost.Row[item]) string {
	return fmt.Sprintf("%q %q version %d of shelf %q, n %d, tags %q", r.Cursor, r.Key, r.Version, r.Value.Shelf, r.Value.N, r.Value.Tags)
}

// differsFrom returns an error if the rows are not those of a List.
func (f *fold) differsFrom(list []dohost.Row[item], reverse bool) error {
	if got := f.list(reverse); !slices.EqualFunc(got, list, sameRow) {
		return fmt.Errorf("the deltas make %s; want %s", rowTexts(got), rowTexts(list))
	}
	return nil
}

func rowTexts(rows []dohost.Row[item]) string {
	texts := make([]string, len(rows))
	for i, r := range rows {
		texts[i] = rowText(r)
	}
	return "[" + strings.Join(texts, "; ") + "]"
}

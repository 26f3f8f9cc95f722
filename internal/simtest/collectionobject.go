package simtest

import (
	"context"
	"errors"

	"github.com/dohost/dohost"
)

// collectionObject is an object with a collection, an index and a feed.
type collectionObject struct{ st *dohost.State }

// book is a row. Try distinguishes the attempts of one edit: one may be lost and another
// committed, and a reader must never see an entry of the lost one.
type book struct {
	ID    string
	Lent  bool
	Pages int
	Try   int
}

type edit struct {
	N    int // counts edits from 1: the offset of its entry
	Op   dohost.Op
	Book book
}

var (
	collectionObjects dohost.Namespace[collectionObject] = "collection-object"
	changes                                              = dohost.Feed{Name: "changes", Values: true}
	books                                                = dohost.Collection[book]{
		Name:    "books",
		Key:     func(b book) string { return b.ID },
		Indexes: []dohost.Index[book]{{Name: "lent", Of: func(b book) dohost.Key { return dohost.KeyOf(b.Lent) + dohost.KeyOf(b.Pages) }}},
		Feed:    &changes,
	}
)

// apply makes an edit once, and returns the try that was committed.
func (s *collectionObject) apply(ctx context.Context, e edit) (try int, err error) {
	tries, _, err := dohost.Get[[]int](ctx, s.st.Storage(), "tries")
	if err != nil {
		return 0, err
	}
	if len(tries) >= e.N {
		return tries[e.N-1], nil
	}
	switch e.Op {
	case dohost.OpInsert:
		err = books.Insert(ctx, s.st.Storage(), e.Book)
	case dohost.OpUpdate:
		_, err = books.Update(ctx, s.st.Storage(), e.Book.ID, func(b *book) error { *b = e.Book; return nil })
	case dohost.OpDelete:
		_, err = books.Delete(ctx, s.st.Storage(), e.Book.ID)
	}
	return e.Book.Try, errors.Join(err, dohost.Put(ctx, s.st.Storage(), "tries", append(tries, e.Book.Try)))
}

// entry is a change as an outside reader remembers it.
type entry struct {
	At      dohost.Position
	Op      dohost.Op
	Key     string
	Version uint64
	Book    book
}

// tail waits for entries after a position.
func (s *collectionObject) tail(ctx context.Context, after dohost.Position) ([]entry, error) {
	if err := changes.Wait(ctx, s.st.Storage(), after); err != nil {
		return nil, err
	}
	return s.entries(ctx, after)
}

func (s *collectionObject) entries(ctx context.Context, after dohost.Position) (es []entry, err error) {
	found, err := changes.Read(ctx, s.st.Storage(), after, 0)
	for _, c := range found {
		b, _, err := books.Value(c)
		if err != nil {
			return nil, err
		}
		es = append(es, entry{c.Position, c.Op, c.Key, c.Version, b})
	}
	return es, err
}

// rows is the content of the collection, row by row and by the index.
type rows struct {
	All, Lent, Here []book
	Versions        []uint64
	Counted         [2]int // of Lent and Here, by the entries of the index alone
	Tries           []int
}

func (s *collectionObject) rows(ctx context.Context, _ none) (r rows, err error) {
	for row, err := range books.All(ctx, s.st.Storage(), nil) {
		if err != nil {
			return r, err
		}
		r.All, r.Versions = append(r.All, row.Value), append(r.Versions, row.Version)
	}
	for i, into := range []*[]book{&r.Lent, &r.Here} {
		q := &dohost.Query[book]{Index: "lent", Prefix: dohost.KeyOf(i == 0)}
		found, err := books.List(ctx, s.st.Storage(), q)
		if err != nil {
			return r, err
		}
		for _, row := range found {
			*into = append(*into, row.Value)
		}
		if r.Counted[i], err = books.Count(ctx, s.st.Storage(), q); err != nil {
			return r, err
		}
	}
	r.Tries, _, err = dohost.Get[[]int](ctx, s.st.Storage(), "tries")
	return r, err
}

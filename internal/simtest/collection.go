package simtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// edits are the edits of the rows, and entryVersions the versions of their entries.
var (
	edits = []edit{
		{1, dohost.OpInsert, book{ID: "a", Pages: 300}},
		{2, dohost.OpInsert, book{ID: "b", Pages: 200}},
		{3, dohost.OpUpdate, book{ID: "a", Pages: 300, Lent: true}},
		{4, dohost.OpDelete, book{ID: "b"}},
		{5, dohost.OpInsert, book{ID: "b", Pages: 100}},
	}
	entryVersions = []uint64{1, 1, 2, 1, 1}
)

// collectionRun is a writer and a reader of one collectionObject.
type collectionRun struct {
	tries     int
	committed []int // the committed try of each edit, as the writer received it
	read      []entry
}

func (s *collectionRun) write(ctx context.Context, h *dohosttest.Host) error {
	for _, e := range edits {
		var try int
		err := retry(ctx, func(ctx context.Context) (err error) {
			s.tries++
			e.Book.Try = s.tries
			try, err = dohost.Call(ctx, collectionObjects.Get(h, "a"), (*collectionObject).apply, e)
			return err
		})
		if err != nil {
			return err
		}
		s.committed = append(s.committed, try)
	}
	return nil
}

func (s *collectionRun) follow(ctx context.Context, h *dohosttest.Host) error {
	var at dohost.Position
	for len(s.read) < len(edits) {
		es, err := retryCall(ctx, collectionObjects.Get(h, "a"), (*collectionObject).tail, at)
		if err != nil {
			return err
		}
		if len(es) == 0 {
			return errors.New("a reader waited for entries, and there are none")
		}
		s.read = append(s.read, es...)
		at = es[len(es)-1].At
	}
	return nil
}

func (s *collectionRun) run(_ context.Context, h *dohosttest.Host) error {
	reader := h.Client(func(ctx context.Context) error { return s.follow(ctx, h) })
	writer := h.Client(func(ctx context.Context) error { return s.write(ctx, h) })
	return errors.Join(writer.Wait(), reader.Wait())
}

func (s *collectionRun) check(ctx context.Context, h *dohosttest.Host) error {
	r, err := dohost.Call(ctx, collectionObjects.Get(h, "a"), (*collectionObject).rows, none{})
	es, err2 := dohost.Call(ctx, collectionObjects.Get(h, "a"), (*collectionObject).entries, dohost.Position{})
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	a, b := edits[2].Book, edits[4].Book
	if len(s.committed) == len(edits) {
		a.Try, b.Try = s.committed[2], s.committed[4]
	}
	return errors.Join(
		differ("committed tries", r.Tries, s.committed),
		differ("rows", r.All, []book{a, b}), differ("versions", r.Versions, []uint64{2, 1}),
		differ("rows of the index, lent", r.Lent, []book{a}), differ("rows of the index, here", r.Here, []book{b}),
		differ("entries of the index", r.Counted, [2]int{1, 1}),
		differ("the feed as a reader received it", s.read, es), s.checkFeed(es))
}

// checkFeed compares the entries with the edits.
func (s *collectionRun) checkFeed(es []entry) (err error) {
	if len(es) != len(edits) {
		return fmt.Errorf("the feed has %d entries of %d edits", len(es), len(edits))
	}
	for i, e := range es {
		want := entry{At: dohost.Position{Log: es[0].At.Log, Offset: uint64(i + 1)}, Op: edits[i].Op, Key: edits[i].Book.ID, Version: entryVersions[i]}
		if want.Op != dohost.OpDelete {
			want.Book = edits[i].Book
			want.Book.Try = s.committed[i]
		}
		err = errors.Join(err, differ("an entry of the feed", e, want))
	}
	return err
}

// newCollection has a collection with an index, and a feed with an outside reader.
func newCollection() dohosttest.Scenario {
	s := new(collectionRun)
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(collectionObjects, func(_ context.Context, st *dohost.State) (*collectionObject, error) {
			return &collectionObject{st}, nil
		}, nil)},
		Places: objectPlaces,
		Reset:  func() { *s = collectionRun{} },
		Run:    s.run,
		Check:  s.check,
	}
}

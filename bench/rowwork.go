package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// sorter is an agent whose parcels are work.
type sorter struct {
	*agent.Agent[struct{}]
	side *rowSide
}

const sorters dohost.Namespace[sorter] = "sorter"

// parcel is a row that waits until it is deleted.
type parcel struct{ Number int }

var parcels = dohost.Collection[parcel]{
	Name: "parcels", Key: func(p parcel) string { return string(dohost.KeyOf(p.Number)) },
	Indexes: []dohost.Index[parcel]{{Name: "number", Of: func(p parcel) dohost.Key { return dohost.KeyOf(p.Number) }}},
}

func (s *sorter) insert(ctx context.Context, number int) (struct{}, error) {
	return struct{}{}, parcels.Insert(ctx, s.Storage(), parcel{number})
}

// sort deletes a parcel and writes its receipt.
func (s *sorter) sort(ctx context.Context, number int) (struct{}, error) {
	existed, err := parcels.Delete(ctx, s.Storage(), string(dohost.KeyOf(number)))
	if err == nil && !existed {
		err = fmt.Errorf("the parcel %d is not there", number)
	}
	return struct{}{}, errors.Join(err, dohost.Put(ctx, s.Storage(), fmt.Sprintf("receipt/%012d", number), number))
}

// onParcels sorts parcels. Their callers continue when that is durable.
func (s *sorter) onParcels(ctx context.Context, rows []dohost.Row[parcel]) error {
	for _, row := range rows {
		if _, err := s.sort(ctx, row.Value.Number); err != nil {
			return err
		}
	}
	return s.Object().Emit(ctx, func(err error) {
		for _, row := range rows {
			if ch, ok := s.side.waiting.LoadAndDelete(row.Value.Number); ok {
				ch.(chan error) <- err
			}
		}
	})
}

// left returns the numbers of the parcels and of the receipts.
func (s *sorter) left(ctx context.Context) (n [2]int, err error) {
	if n[0], err = parcels.Count(ctx, s.Storage(), nil); err != nil {
		return n, err
	}
	for _, err := range dohost.All[int](ctx, s.Storage(), &dohost.ListOptions{Prefix: "receipt/"}) {
		if err != nil {
			return n, err
		}
		n[1]++
	}
	return n, nil
}

// rowSide is a host with sorters, and callers that insert parcels in closed loops.
type rowSide struct {
	*dohost.Host
	fs              *objectstore.FS
	dir             string
	agents, callers int
	entries         []agent.Entry[sorter] // none if a second call sorts the parcel
	next            atomic.Int64
	waiting         sync.Map // a chan error for each number that is inserted and not sorted
}

func (b *bench) openRows(entries ...agent.Entry[sorter]) (s *rowSide, err error) {
	s = &rowSide{agents: 1, callers: 1, entries: entries}
	if s.dir, err = b.newDir(); err != nil {
		return nil, err
	}
	return s, s.open()
}

func (s *rowSide) open() (err error) {
	s.fs = objectstore.DiskFS()
	s.Host, err = dohost.Open(s.dir, kernel.OnFS(&dohost.Options{IdleAfter: -1}, s.fs), agent.Bind(sorters,
		func(_ context.Context, a *agent.Agent[struct{}]) (*sorter, error) { return &sorter{a, s}, nil }, nil, s.entries...))
	return err
}

func (s *rowSide) work(ctx context.Context, m *meter) error {
	return m.each(s.callers, func(_ int, w *worker) error {
		for !w.over() {
			began := time.Now()
			if err := s.one(ctx); err != nil {
				return err
			}
			w.did(began)
		}
		return nil
	})
}

// one inserts a parcel, and returns when it is sorted durably.
func (s *rowSide) one(ctx context.Context) error {
	number := int(s.next.Add(1))
	stub := sorters.Get(s, name(number%s.agents))
	sorted := make(chan error, 1)
	if len(s.entries) > 0 {
		s.waiting.Store(number, sorted)
	}
	if _, err := dohost.Call(ctx, stub, (*sorter).insert, number); err != nil {
		return err
	}
	if len(s.entries) == 0 {
		_, err := dohost.Call(ctx, stub, (*sorter).sort, number)
		return err
	}
	select {
	case err := <-sorted:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// verify reads the receipts from the disk: one for each parcel, and no parcel.
func (s *rowSide) verify(ctx context.Context, done int64) error {
	if err := errors.Join(s.Close(), s.open()); err != nil {
		return err
	}
	var receipts int64
	for i := range s.agents {
		n, err := dohost.CallNoArg(ctx, sorters.Get(s, name(i)), (*sorter).left)
		if err != nil {
			return err
		}
		if n[0] > 0 {
			return fmt.Errorf("agent %d has %d parcels that are not sorted", i, n[0])
		}
		receipts += int64(n[1])
	}
	if receipts != done {
		return fmt.Errorf("the agents have %d receipts, and %d parcels were sorted", receipts, done)
	}
	return nil
}

func (s *rowSide) syncs() int64 { return s.fs.Syncs() }

func (s *rowSide) close() error { return s.Close() }

// rowWork measures rows that are work, each from its insertion until the writes of its call are durable.
func rowWork(ctx context.Context, b *bench) error {
	for _, r := range []struct {
		id, what        string
		agents, callers int
	}{
		{"W1", "rows that are work (OnRows), 1 agent, 1 caller", 1, 1},
		{"W2", "the same, 64 agents, 64 outstanding", 64, 64},
		{"W3", "the same, 1 agent, 64 outstanding", 1, 64},
	} {
		if err := b.compareRows(ctx, Row{ID: r.id, What: r.what, Unit: "rows/s"}, r.agents, r.callers); err != nil {
			return fmt.Errorf("%s: %w", r.id, err)
		}
	}
	return nil
}

// rowCost returns the commits of a row that is work, while there are no others, and the bytes of one of them.
func (b *bench) rowCost(ctx context.Context, e agent.Entry[sorter]) (commits, size int, err error) {
	s, err := b.openRows(e)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	const rows = 50
	before := s.Stats()
	for range rows {
		if err := s.one(ctx); err != nil {
			return 0, 0, err
		}
	}
	after := s.Stats()
	batches := after.Batches - before.Batches
	return int(math.Round(float64(batches) / rows)), int((after.Bytes - before.Bytes) / batches), nil
}

// compareRows compares rows that are work with a second call that handles the row, and with the commits of such a row in raw Pebble.
func (b *bench) compareRows(ctx context.Context, r Row, agents, callers int) (err error) {
	one := agent.OnRows(&parcels, "number", func(s *sorter, ctx context.Context, row dohost.Row[parcel]) error {
		return s.onParcels(ctx, []dohost.Row[parcel]{row})
	}, nil)
	batch := agent.OnRowBatch(&parcels, "number", (*sorter).onParcels, nil)
	var sides []named
	for _, c := range []struct {
		name    string
		entries []agent.Entry[sorter]
	}{{ours, []agent.Entry[sorter]{one}}, {"two calls", nil}, {"OnRowBatch", []agent.Entry[sorter]{batch}}} {
		s, err := b.openRows(c.entries...)
		if err != nil {
			return errors.Join(err, closeAll(sides))
		}
		s.agents, s.callers = agents, callers
		sides = append(sides, named{c.name, s})
	}
	commits, size, err := b.rowCost(ctx, one)
	l := &raw{objects: callers, callers: callers, appends: true, size: size, commits: commits}
	if err == nil {
		err = l.open(b)
	}
	if err != nil {
		return errors.Join(err, closeAll(sides))
	}
	if r.Sides, err = b.compare(ctx, append(sides, named{limit, l})...); err != nil {
		return err
	}
	var syncs []string
	for _, f := range r.Sides {
		syncs = append(syncs, fmt.Sprintf("%s %.2f", f.Side, f.Syncs))
	}
	r.Notes = []string{
		"a row is inserted by a call; its method deletes it and writes a receipt. It counts when these writes are durable",
		"two calls: the same writes, by a second call of the client, which is durable when it returns",
		fmt.Sprintf("limit: %d synced commits of %d B for each row, one after the other, by as many goroutines as there are callers", commits, size),
		"syncs for each row: " + strings.Join(syncs, "; "),
	}
	b.add(r)
	return nil
}

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

// rowAgent is an agent with rows that are work.
type rowAgent struct {
	*agent.Agent[struct{}]
	side *rowSide
}

const rowAgents dohost.Namespace[rowAgent] = "rowjob"

// numberRow is a row that waits until it is deleted.
type numberRow struct{ Number int }

var numberRows = dohost.Collection[numberRow]{
	Name: "numbers", Key: func(r numberRow) string { return string(dohost.KeyOf(r.Number)) },
	Indexes: []dohost.Index[numberRow]{{Name: "number", Of: func(r numberRow) dohost.Key { return dohost.KeyOf(r.Number) }}},
}

func (s *rowAgent) insert(ctx context.Context, number int) (struct{}, error) {
	return struct{}{}, numberRows.Insert(ctx, s.Storage(), numberRow{number})
}

// finish deletes a row and writes its receipt.
func (s *rowAgent) finish(ctx context.Context, number int) (struct{}, error) {
	existed, err := numberRows.Delete(ctx, s.Storage(), string(dohost.KeyOf(number)))
	if err == nil && !existed {
		err = fmt.Errorf("the row %d is not there", number)
	}
	return struct{}{}, errors.Join(err, dohost.Put(ctx, s.Storage(), fmt.Sprintf("receipt/%012d", number), number))
}

// onRows finishes rows. Their callers continue when that is durable.
func (s *rowAgent) onRows(ctx context.Context, rows []dohost.Row[numberRow]) error {
	for _, row := range rows {
		if _, err := s.finish(ctx, row.Value.Number); err != nil {
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

// left returns the numbers of the rows and of the receipts.
func (s *rowAgent) left(ctx context.Context) (n [2]int, err error) {
	if n[0], err = numberRows.Count(ctx, s.Storage(), nil); err != nil {
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

// rowSide is a host with rowAgents, and callers that insert rows in closed loops.
type rowSide struct {
	*dohost.Host
	fs              *objectstore.FS
	dir             string
	agents, callers int
	entries         []agent.Entry[rowAgent] // none if a second call finishes the row
	next            atomic.Int64
	waiting         sync.Map // a chan error for each number that is inserted and not finished
}

func (b *bench) openRows(entries ...agent.Entry[rowAgent]) (s *rowSide, err error) {
	s = &rowSide{agents: 1, callers: 1, entries: entries}
	if s.dir, err = b.newDir(); err != nil {
		return nil, err
	}
	return s, s.open()
}

func (s *rowSide) open() (err error) {
	s.fs = objectstore.DiskFS()
	s.Host, err = dohost.Open(s.dir, kernel.OnFS(&dohost.Options{IdleAfter: -1}, s.fs), agent.Bind(rowAgents,
		func(_ context.Context, a *agent.Agent[struct{}]) (*rowAgent, error) { return &rowAgent{a, s}, nil }, nil, s.entries...))
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

// one inserts a row, and returns when it is finished durably.
func (s *rowSide) one(ctx context.Context) error {
	number := int(s.next.Add(1))
	stub := rowAgents.Get(s, name(number%s.agents))
	finished := make(chan error, 1)
	if len(s.entries) > 0 {
		s.waiting.Store(number, finished)
	}
	if _, err := dohost.Call(ctx, stub, (*rowAgent).insert, number); err != nil {
		return err
	}
	if len(s.entries) == 0 {
		_, err := dohost.Call(ctx, stub, (*rowAgent).finish, number)
		return err
	}
	select {
	case err := <-finished:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// verify reads the receipts from the disk: one for each finished row, and no other row.
func (s *rowSide) verify(ctx context.Context, done int64) error {
	if err := errors.Join(s.Close(), s.open()); err != nil {
		return err
	}
	var receipts int64
	for i := range s.agents {
		n, err := dohost.CallNoArg(ctx, rowAgents.Get(s, name(i)), (*rowAgent).left)
		if err != nil {
			return err
		}
		if n[0] > 0 {
			return fmt.Errorf("agent %d has %d rows that are not finished", i, n[0])
		}
		receipts += int64(n[1])
	}
	if receipts != done {
		return fmt.Errorf("the agents have %d receipts, and %d rows were finished", receipts, done)
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
func (b *bench) rowCost(ctx context.Context, e agent.Entry[rowAgent]) (commits, size int, err error) {
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
	one := agent.OnRows(&numberRows, "number", func(s *rowAgent, ctx context.Context, row dohost.Row[numberRow]) error {
		return s.onRows(ctx, []dohost.Row[numberRow]{row})
	}, nil)
	batch := agent.OnRowBatch(&numberRows, "number", (*rowAgent).onRows, nil)
	var sides []named
	for _, c := range []struct {
		name    string
		entries []agent.Entry[rowAgent]
	}{{ours, []agent.Entry[rowAgent]{one}}, {"two calls", nil}, {"OnRowBatch", []agent.Entry[rowAgent]{batch}}} {
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

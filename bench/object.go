package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// subject is the object of most measurements: a counter, in memory and on the disk, with a list and an alarm.
type subject struct {
	st    *dohost.State
	calls int // of this incarnation
	rows  int // appended or read, once known
	fired func(dohost.AlarmInfo)
}

const subjects dohost.Namespace[subject] = "subject"

// class is the class of subjects. The handler of their alarm calls onAlarm, which may be nil.
func class(onAlarm func(id dohost.ID, a dohost.AlarmInfo)) dohost.Class {
	return dohost.Bind(subjects, func(_ context.Context, st *dohost.State) (*subject, error) {
		s := &subject{st: st}
		if onAlarm != nil {
			s.fired = func(a dohost.AlarmInfo) { onAlarm(st.ID(), a) }
		}
		return s, nil
	}, &dohost.Handlers[subject]{OnAlarm: (*subject).onAlarm, OnHTTP: (*subject).show}, dohost.Expose("add", (*subject).add))
}

// add counts one, durably, and returns the sum.
func (s *subject) add(ctx context.Context, delta int) (int, error) {
	n, _, err := dohost.Get[int](ctx, s.st.Storage(), "n")
	if err != nil {
		return 0, err
	}
	n += delta
	return n, dohost.Put(ctx, s.st.Storage(), "n", n)
}

func (s *subject) get(ctx context.Context, _ int) (int, error) {
	n, _, err := dohost.Get[int](ctx, s.st.Storage(), "n")
	return n, err
}

// append adds a row, and returns how many there are.
func (s *subject) append(ctx context.Context, v int) (int, error) {
	if s.rows == 0 {
		rows, err := dohost.List[int](ctx, s.st.Storage(), &dohost.ListOptions{Prefix: "row/", Reverse: true, Limit: 1})
		if err != nil {
			return 0, err
		}
		if len(rows) > 0 {
			if _, err := fmt.Sscanf(rows[0].Key, "row/%d", &s.rows); err != nil {
				return 0, err
			}
		}
	}
	s.rows++
	return s.rows, dohost.Put(ctx, s.st.Storage(), fmt.Sprintf("row/%012d", s.rows), v)
}

// appendMany adds n rows, and returns how many there are.
func (s *subject) appendMany(ctx context.Context, n int) (rows int, err error) {
	for range n {
		if rows, err = s.append(ctx, 1); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// count reads all rows, and returns how many there are and how many hold v.
func (s *subject) count(ctx context.Context, v int) (n [2]int, err error) {
	for row, err := range dohost.All[int](ctx, s.st.Storage(), &dohost.ListOptions{Prefix: "row/"}) {
		if err != nil {
			return n, err
		}
		n[0]++
		if row.Value == v {
			n[1]++
		}
	}
	return n, nil
}

// wipe deletes all rows.
func (s *subject) wipe(ctx context.Context, _ int) (int, error) {
	return 0, s.st.Storage().DeleteAll(ctx)
}

// touch does nothing but count in memory.
func (s *subject) touch(context.Context, int) (int, error) {
	s.calls++
	return s.calls, nil
}

// arm sets the alarm.
func (s *subject) arm(ctx context.Context, at time.Time) (int, error) {
	return 0, s.st.SetAlarm(ctx, at)
}

func (s *subject) onAlarm(_ context.Context, a dohost.AlarmInfo) error {
	if s.fired != nil {
		s.fired(a)
	}
	return nil
}

// name is the name of the i-th object.
func name(i int) string { return fmt.Sprintf("o%07d", i) }

// host is dohost as a side, or the base of one.
type host struct {
	*dohost.Host
	fs  *objectstore.FS
	dir string
}

// open opens a host in a directory of its own, and counts its syncs. Objects leave memory only by evictions, unless
// the options limit their idle time.
func (b *bench) open(o dohost.Options, onAlarm func(dohost.ID, dohost.AlarmInfo)) (*host, error) {
	dir, err := b.newDir()
	if err != nil {
		return nil, err
	}
	return openIn(dir, o, onAlarm)
}

func openIn(dir string, o dohost.Options, onAlarm func(dohost.ID, dohost.AlarmInfo)) (*host, error) {
	fs := objectstore.DiskFS()
	if o.IdleAfter == 0 {
		o.IdleAfter = -1
	}
	h, err := dohost.Open(dir, kernel.OnFS(&o, fs), class(onAlarm))
	if err != nil {
		return nil, err
	}
	return &host{h, fs, dir}, nil
}

// reopen closes the host and opens it again, without chaos: later answers come from the disk.
func (h *host) reopen() error {
	if err := h.Close(); err != nil {
		return err
	}
	again, err := openIn(h.dir, dohost.Options{}, nil)
	if err != nil {
		return err
	}
	*h = *again
	return nil
}

// reopenInTables is reopen with an empty log: all rows of the objects are in tables.
func (h *host) reopenInTables() error {
	if err := h.Close(); err != nil {
		return err
	}
	if err := quietly(h.dir); err != nil {
		return err
	}
	return h.reopen()
}

func (h *host) syncs() int64 { return h.fs.Syncs() }

func (h *host) close() error { return h.Close() }

// fill calls each of n objects once, with many concurrent callers.
func fill[In any](
	ctx context.Context, b *bench, h *host, n int, method func(*subject, context.Context, In) (int, error), in In,
) error {
	return fillBy(b, 0, n, func(i int) error {
		_, err := dohost.Call(ctx, subjects.Get(h, name(i)), method, in)
		return err
	})
}

// fillers is the number of callers that fill a store.
const fillers = 256

// fillBy calls fn for every object from the one to before the other.
func fillBy(b *bench, from, to int, fn func(i int) error) error {
	return together(fillers, func(c int) error {
		for i := from + c; i < to; i += fillers {
			if err := fn(i); err != nil {
				return err
			}
			if c == 0 && i%(fillers*64) == 0 {
				b.progress("filling: %d of %d objects", i, to)
			}
		}
		return nil
	})
}

// evictAll ends every incarnation.
func (h *host) evictAll(n int) {
	for i := range n {
		h.Evict(subjects.Get(h, name(i)).ID(), dohost.EndFence)
	}
}

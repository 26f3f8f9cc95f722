package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
)

// counting is a host and callers that add to its objects, each in a closed loop.
type counting struct {
	*host
	objects, callers int
	method           func(*subject, context.Context, int) (int, error)
	appends          bool
	retry            bool // repeat calls that are known not to have run
	next             atomic.Int64
	unknown          atomic.Int64 // calls with an unknown outcome
}

func (c *counting) work(ctx context.Context, m *meter) error {
	stubs := make([]dohost.Stub[subject], c.objects)
	for i := range stubs {
		stubs[i] = subjects.Get(c.host, name(i))
	}
	return m.each(c.callers, func(i int, w *worker) error {
		for !w.over() {
			s := stubs[int(c.next.Add(1))%len(stubs)]
			began := time.Now()
			_, err := dohost.Call(ctx, s, c.method, 1)
			for c.retry && err != nil {
				if e, ok := errors.AsType[*dohost.Error](err); !ok || e.Outcome == dohost.OutcomeRan {
					return err
				} else if e.Outcome == dohost.OutcomeUnknown {
					c.unknown.Add(1)
				}
				_, err = dohost.Call(ctx, s, c.method, 1)
			}
			if err != nil {
				return err
			}
			w.did(began)
		}
		return nil
	})
}

// verify adds up the counts on the disk. A call with an unknown outcome may have counted, or not.
func (c *counting) verify(ctx context.Context, done int64) error {
	if err := c.reopen(); err != nil {
		return err
	}
	var sum int64
	for i := range c.objects {
		s := subjects.Get(c.host, name(i))
		var n int
		var err error
		if c.appends {
			var rows [2]int
			rows, err = dohost.Call(ctx, s, (*subject).count, 1)
			n = rows[1]
			if err == nil && rows[0] != rows[1] {
				err = fmt.Errorf("%d of %d rows hold something else", rows[0]-rows[1], rows[0])
			}
		} else {
			n, err = dohost.Call(ctx, s, (*subject).get, 0)
		}
		if err != nil {
			return err
		}
		sum += int64(n)
	}
	if most := done + c.unknown.Load(); sum < done || sum > most {
		return fmt.Errorf("the objects hold %d, and %d to %d calls were answered", sum, done, most)
	}
	return nil
}

// against compares increments with raw commits of the same shape, and with the peer.
func (b *bench) against(ctx context.Context, r Row, o dohost.Options, c *counting, l *raw) error {
	h, err := b.open(o, nil)
	if err != nil {
		return err
	}
	c.host = h
	sides := []named{{ours, c}}
	if l != nil {
		if err := l.open(b); err != nil {
			return errors.Join(err, h.Close())
		}
		sides = append(sides, named{limit, l})
	}
	if b.peer != nil && !c.appends {
		p, err := b.openPeer(ctx, c.objects, 0)
		if err != nil {
			return errors.Join(err, closeAll(sides))
		}
		sides = append(sides, named{workerd, outside{&driven{p, c.objects, c.callers}, p}})
		if r.Target.Times > 0 {
			r.Target.Text += fmt.Sprintf(", ≥ %g × %s", r.Target.Times, workerd)
		}
	}
	if r.Sides, err = b.compare(ctx, sides...); err != nil {
		return err
	}
	r.Unit = "calls/s"
	b.add(r)
	return nil
}

func hotObject(ctx context.Context, b *bench) error {
	return b.against(ctx, Row{
		ID: "P1", What: "durable increments of one key, 1 object, 256 outstanding",
		Target: Target{Text: "≥ 0.9 of the limit", Reference: limit, MinRatio: 0.9, Times: 60},
		Notes:  []string{"limit: one commit of one key for each call, 256 in flight by ApplyNoSyncWait"},
	}, dohost.Options{}, &counting{objects: 1, callers: 256, method: (*subject).add}, &raw{objects: 1, depth: 256})
}

func hotAppends(ctx context.Context, b *bench) error {
	return b.against(ctx, Row{
		ID: "P1a", What: "durable appends of a row, 1 object, 256 outstanding",
		Target: Target{Text: "≥ 0.8 of the limit", Reference: limit, MinRatio: 0.8},
		Notes:  []string{"limit: one commit of one new key for each call, 256 in flight by ApplyNoSyncWait"},
	}, dohost.Options{}, &counting{objects: 1, callers: 256, method: (*subject).append, appends: true},
		&raw{objects: 1, depth: 256, appends: true})
}

func oneCaller(ctx context.Context, b *bench) error {
	return b.against(ctx, Row{
		ID: "P2", What: "durable increments, 1 object, 1 caller",
		Target: Target{Text: "≥ 0.9 of the limit", Reference: limit, MinRatio: 0.9},
		Notes:  []string{"limit: one synced commit after the other"},
	}, dohost.Options{}, &counting{objects: 1, callers: 1, method: (*subject).add}, &raw{objects: 1, callers: 1})
}

func manyObjects(ctx context.Context, b *bench) error {
	return b.many(ctx, Row{
		ID: "P3", What: "durable increments, 1,000 objects, 64 outstanding",
		Target: Target{Text: "≥ 0.75 of the limit", Reference: limit, MinRatio: 0.75},
		Notes:  []string{"limit: 64 goroutines, each with objects of its own and one synced commit after the other"},
	}, &raw{objects: 1000, callers: 64})
}

// manyOnOneCore has no peer, because the peer's process would have the other cores.
func manyOnOneCore(ctx context.Context, b *bench) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer func(p *peer) { b.peer = p }(b.peer)
	b.peer = nil
	return b.many(ctx, Row{
		ID: "P3c", What: "durable increments, 1,000 objects, 64 outstanding, on one core",
		Target: Target{Text: "≥ 0.55 of the limit", Reference: limit, MinRatio: 0.55},
		Notes: []string{
			"both sides with GOMAXPROCS 1",
			"limit: one commit of one key for each call, 64 in flight by ApplyNoSyncWait; " +
				"goroutines that wait for their syncs share few of them on one core",
		},
	}, &raw{objects: 1000, depth: 64})
}

func (b *bench) many(ctx context.Context, r Row, l *raw) error {
	return b.against(ctx, r, dohost.Options{}, &counting{objects: 1000, callers: 64, method: (*subject).add}, l)
}

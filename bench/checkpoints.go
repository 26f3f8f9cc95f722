package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// saveMode is a way to save a fiber's checkpoint.
type saveMode struct {
	id, what string
	every    int           // after this many items; zero if not by their number
	period   time.Duration // after this time; zero if not by time
	end      bool          // when there are no more items
	save     func(ctx context.Context, v any) error
	durable  bool // it is on disk when the save returns
}

// saveModes are the measured ways. The first saves none.
func saveModes(period time.Duration) []saveMode {
	ways := []saveMode{{id: "C0", what: "none"}}
	for _, w := range []saveMode{
		{id: "C1", what: "after each item", every: 1},
		{id: "C2", what: fmt.Sprintf("after every %d items", itemsPerCheckpoint), every: itemsPerCheckpoint},
		{id: "C3", what: fmt.Sprintf("every %v", period), period: period},
		{id: "C4", what: "once, at the end", end: true},
	} {
		c := w
		w.what, w.save, w.durable = w.what+", by SaveCheckpoint", agent.SaveCheckpoint, true
		c.id, c.what, c.save = c.id+"c", c.what+", by SetCheckpoint", agent.SetCheckpoint
		ways = append(ways, w, c)
	}
	return ways
}

// itemsPerCheckpoint is the number of items for each checkpoint by number.
const itemsPerCheckpoint = 10

// due returns whether a checkpoint is due, after items and a time since the one before.
func (w saveMode) due(items int, since time.Duration) bool {
	return w.every > 0 && items%w.every == 0 || w.period > 0 && since >= w.period
}

// copier is an agent with a fiber that takes items from a channel, one after the other.
type copier struct {
	*agent.Agent[struct{}]
	found chan<- copyCheckpoint // the checkpoint of an interrupted fiber
}

// copyCheckpoint is a checkpoint of it: about a hundred bytes of JSON.
type copyCheckpoint struct {
	Source string
	Items  int
	Sum    int
}

const copiers dohost.Namespace[copier] = "copier"

// source is the text of the items.
const source = "an address of what is copied, with a path and a version"

func copierClass(found chan<- copyCheckpoint) dohost.Class {
	return agent.Bind(copiers, func(_ context.Context, a *agent.Agent[struct{}]) (*copier, error) {
		return &copier{a, found}, nil
	}, &agent.Handlers[copier, struct{}]{
		OnInterrupted: func(c *copier, _ context.Context, i *agent.InterruptedRun) error {
			var p copyCheckpoint
			_, err := i.Checkpoint(&p)
			c.found <- p
			return err
		},
	})
}

// copyItems takes items until it is stopped, and at least one: on a slow machine a short round may be over before the fiber runs. It
// reports each item that is done, with its start and the number of items, and each checkpoint when the save has returned.
func (c *copier) copyItems(
	ctx context.Context, w saveMode, over func() bool, did func(began time.Time, items int) error, acked func(copyCheckpoint) error,
) error {
	return agent.RunFiber(ctx, c, "copy", func(ctx context.Context) error {
		items := make(chan int, 1)
		var kept copyCheckpoint
		keep := func(p copyCheckpoint) error {
			kept = p
			if err := w.save(ctx, p); err != nil {
				return err
			}
			return acked(p)
		}
		p, last := copyCheckpoint{Source: source}, time.Now()
		for p.Items == 0 || !over() {
			began := time.Now()
			items <- p.Items
			item, _, err := dohost.Recv(ctx, items) // writes so far are on their way to the disk
			if err != nil {
				return err
			}
			p.Items, p.Sum = p.Items+1, p.Sum+item
			if w.due(p.Items, began.Sub(last)) {
				last = began
				if err := keep(p); err != nil {
					return err
				}
			}
			if err := did(began, p.Items); err != nil {
				return err
			}
		}
		if w.end {
			if err := keep(p); err != nil {
				return err
			}
		}
		return c.copied(ctx, p.Items, kept)
	})
}

// copied compares the fiber's row with the last checkpoint, and counts the items in the batch that deletes the row.
func (c *copier) copied(ctx context.Context, items int, kept copyCheckpoint) error {
	id, _ := agent.FiberID(ctx)
	info, ok, err := c.Fibers().Get(ctx, id)
	if err != nil {
		return err
	}
	var p copyCheckpoint
	if ok && info.Checkpoint != nil {
		err = json.Unmarshal(info.Checkpoint, &p)
	}
	if err != nil || p != kept {
		return fmt.Errorf("the fiber's checkpoint is %v, want %v; %v", p, kept, err)
	}
	n, _, err := dohost.Get[int](ctx, c.Storage(), "items")
	if err != nil {
		return err
	}
	return dohost.Put(ctx, c.Storage(), "items", n+items)
}

// copying is a side with an agent that has one such fiber in each round.
type copying struct {
	*dohost.Host
	dir         string
	fs          *objectstore.FS
	way         saveMode
	checkpoints int64 // checkpoints
	bytes       int64 // of records
}

func (b *bench) openCopying(w saveMode) (c *copying, err error) {
	c = &copying{way: w}
	if c.dir, err = b.newDir(); err != nil {
		return nil, err
	}
	return c, c.open(nil)
}

func (c *copying) open(found chan<- copyCheckpoint) (err error) {
	c.fs = objectstore.DiskFS()
	c.Host, err = dohost.Open(c.dir, kernel.OnFS(&dohost.Options{IdleAfter: -1}, c.fs), copierClass(found))
	return err
}

func (c *copying) stub() dohost.Stub[copier] { return copiers.Get(c, "one") }

func (c *copying) work(ctx context.Context, m *meter) error {
	w := m.worker()
	bytes := c.Stats().Bytes
	defer func() { c.bytes += c.Stats().Bytes - bytes }()
	return c.stub().Do(ctx, func(ctx context.Context, a *copier) error {
		return a.copyItems(ctx, c.way, w.over,
			func(began time.Time, _ int) error { w.did(began); return nil },
			func(copyCheckpoint) error { c.checkpoints++; return nil })
	})
}

// verify reads the number of all its items from the agent, after a restart.
func (c *copying) verify(ctx context.Context, done int64) error {
	if err := errors.Join(c.Close(), c.open(nil)); err != nil {
		return err
	}
	return c.stub().Do(ctx, func(ctx context.Context, a *copier) error {
		n, _, err := dohost.Get[int](ctx, a.Storage(), "items")
		if err == nil && int64(n) != done {
			err = fmt.Errorf("the agent holds %d items, and %d were taken", n, done)
		}
		return err
	})
}

func (c *copying) syncs() int64 { return c.fs.Syncs() }

func (c *copying) close() error { return c.Close() }

// checkpointExperiment measures the cost of each way to save checkpoints, and of a kill with it.
func checkpointExperiment(ctx context.Context, b *bench) error {
	ways := saveModes(min(time.Second, b.duration/2))
	var sides []named
	var copies []*copying
	for _, w := range ways {
		c, err := b.openCopying(w)
		if err != nil {
			return errors.Join(err, closeAll(sides))
		}
		copies, sides = append(copies, c), append(sides, named{w.id, c})
	}
	figures, err := b.compare(ctx, sides...)
	if err != nil {
		return err
	}
	for i, f := range figures {
		w, c := ways[i], copies[i]
		f.Side = ours
		r := Row{
			ID: w.id, What: "a fiber that takes items from a channel, its checkpoint " + w.what, Unit: "items/s", Sides: []Figure{f},
			Notes: []string{
				fmt.Sprintf("%s syncs and %s bytes of records an item", number(f.Syncs), number(float64(c.bytes)/float64(f.Checked))),
			},
		}
		if i == 0 {
			r.What = "a fiber that takes items from a channel, without a checkpoint"
		} else {
			lost, err := b.lostByKills(ctx, w)
			if err != nil {
				return fmt.Errorf("%s: %w", w.id, err)
			}
			r.Notes = append(r.Notes, fmt.Sprintf("%s items a checkpoint; after each of %d SIGKILLs %s items were to be done again, "+
				"at the median, and %s at most", number(float64(f.Checked)/float64(max(1, c.checkpoints))), len(lost),
				number(float64(median(lost))), number(float64(slices.Max(lost)))))
		}
		b.add(r)
	}
	return nil
}

// Offsets in the file, outside of the store, where a copier records its progress.
const (
	doneAt  = 0 // items that are done
	ackedAt = 8 // items of the last checkpoint that a save has acknowledged
)

// copyUntilKilled is a process with one fiber that does not end.
func copyUntilKilled(ctx context.Context, o childParams, reports *json.Encoder) error {
	ways := saveModes(o.Period)
	at := slices.IndexFunc(ways, func(w saveMode) bool { return w.id == o.SaveMode })
	c := &copying{dir: filepath.Join(o.Dir, "store")}
	if err := c.open(nil); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(o.Dir, "done"))
	if err != nil {
		return err
	}
	note := func(items, at int) error {
		_, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(items)), int64(at))
		return err
	}
	return c.stub().Do(ctx, func(ctx context.Context, a *copier) error {
		return a.copyItems(ctx, ways[at], func() bool { return false },
			func(_ time.Time, items int) error {
				if items == 1 {
					return errors.Join(note(1, doneAt), reports.Encode(items))
				}
				return note(items, doneAt)
			},
			func(p copyCheckpoint) error { return note(p.Items, ackedAt) })
	})
}

// lostByKills kills a process in the middle of its fiber, once for each round, and returns the numbers of items that
// the checkpoint lacked.
func (b *bench) lostByKills(ctx context.Context, w saveMode) (items []int, err error) {
	draw := rand.New(rand.NewPCG(b.seed, 2))
	o := childParams{Work: "copy", SaveMode: w.id, Period: min(time.Second, b.duration/2)}
	for len(items) < b.rounds {
		b.progress("%s: kill %d of %d", w.id, len(items)+1, b.rounds)
		var n int
		if o.Dir, err = b.newDir(); err != nil {
			return nil, err
		}
		p, err := o.start(ctx)
		if err != nil {
			return nil, err
		}
		err = p.reports.Decode(&n) // the fiber runs
		time.Sleep(o.Period + time.Duration(draw.Int64N(int64(o.Period))))
		if err = errors.Join(err, p.kill()); err != nil {
			return nil, err
		}
		if n, err = w.lostAfter(o.Dir); err != nil {
			return nil, err
		}
		items = append(items, n)
	}
	return items, nil
}

// lostAfter gets the fiber's checkpoint by the hook, and returns the number of items that had been done beyond it.
func (w saveMode) lostAfter(dir string) (lost int, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "done"))
	if err != nil {
		return 0, err
	}
	text = append(text, make([]byte, 16)...)
	done, acked := int(binary.LittleEndian.Uint64(text[doneAt:])), int(binary.LittleEndian.Uint64(text[ackedAt:]))
	found := make(chan copyCheckpoint, 1)
	c := &copying{dir: filepath.Join(dir, "store")}
	if err := c.open(found); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var p copyCheckpoint
	select {
	case p = <-found:
	case <-time.After(time.Minute):
		return 0, errors.New("OnInterrupted was not called within a minute")
	}
	return w.lost(done, acked, p)
}

// lost is the number of items that are done and not in the checkpoint. The checkpoint may include the last item before
// the file does.
func (w saveMode) lost(done, acked int, p copyCheckpoint) (int, error) {
	if p.Items > done+1 || p.Sum != p.Items*(p.Items-1)/2 || w.durable && p.Items < acked {
		return 0, fmt.Errorf("no figure: %d items are done, the checkpoint is %+v, and one of %d items was acknowledged",
			done, p, acked)
	}
	return max(0, done-p.Items), nil
}

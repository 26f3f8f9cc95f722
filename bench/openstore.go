package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
)

// openings is the number of times that a store is opened.
const openings = 15

// opening measures the time to open a store of many objects with a host, compared with raw Pebble on the same files.
func opening(ctx context.Context, b *bench) error {
	h, err := b.open(dohost.Options{}, nil)
	if err != nil {
		return err
	}
	err = fill(ctx, b, h, b.objects, (*subject).add, 1)
	if err := errors.Join(err, h.Close()); err != nil {
		return err
	}
	disk, err := b.disk(h.dir)
	if err != nil {
		return err
	}
	var own, bare []float64
	for n := range openings {
		b.progress("opening %d of %d", n+1, openings)
		took, err := timed(h.dir, openHost)
		if err != nil {
			return err
		}
		own = append(own, took)
		if took, err = timed(h.dir, openBare); err != nil {
			return err
		}
		bare = append(bare, took)
	}
	b.progress("counting the objects")
	found, err := listed(ctx, h.dir)
	if err == nil && found != b.objects {
		err = fmt.Errorf("no figure: the store lists %d objects, want %d", found, b.objects)
	}
	if err != nil {
		return err
	}
	disk.Sides[0].Checked = int64(found)
	b.add(disk)
	b.add(Row{
		ID: "P18", What: fmt.Sprintf("opening a store with %d objects", b.objects), Unit: "ms",
		Sides: []Figure{
			{Side: ours, Value: median(own), Rounds: own, Checked: int64(found)},
			{Side: limit, Value: median(bare), Rounds: bare},
		},
		Target: Target{Text: "≤ 3 times the limit", Reference: limit, MaxRatio: 3},
		Notes: []string{
			"limit: pebble.Open of the same files", "the files are in the system's cache",
			"after the openings the store lists these objects",
		},
	})
	return nil
}

// listed counts the objects that a host on the files lists.
func listed(ctx context.Context, dir string) (n int, err error) {
	h, err := openIn(dir, dohost.Options{}, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	for _, err := range h.Objects(ctx, string(subjects), "") {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// disk measures the disk space of the objects, without the log, which is made at full length. The caller verifies the
// number of objects.
func (b *bench) disk(dir string) (Row, error) {
	if err := quietly(dir); err != nil { // moves the rows of the log to tables
		return Row{}, err
	}
	tables, err := filepath.Glob(filepath.Join(dir, "db", "*.sst"))
	if err != nil {
		return Row{}, err
	}
	var size int64
	for _, t := range tables {
		info, err := os.Stat(t)
		if err != nil {
			return Row{}, err
		}
		size += info.Size()
	}
	each := float64(size) / float64(b.objects)
	return Row{
		ID: "S1", What: fmt.Sprintf("disk of an object with one small row, of %d", b.objects), Unit: "B",
		Sides: []Figure{{Side: ours, Value: each, Rounds: []float64{each}}},
		Notes: []string{fmt.Sprintf("%d tables, before they are compacted; keys of %d bytes, values of 3",
			len(tables), len((&raw{}).key(0, 0)))},
	}, nil
}

// quietly opens and closes the files, so that the next opening has no log to replay.
func quietly(dir string) error {
	db, err := openRaw(dir, vfs.Default)
	if err != nil {
		return err
	}
	return db.Close()
}

// openHost opens a host on the files, and openBare raw Pebble.
func openHost(dir string) (closing func() error, err error) {
	h, err := openIn(dir, dohost.Options{}, nil)
	if err != nil {
		return nil, err
	}
	return h.Close, nil
}

func openBare(dir string) (closing func() error, err error) {
	db, err := openRaw(dir, vfs.Default)
	if err != nil {
		return nil, err
	}
	return db.Close, nil
}

// timed returns the milliseconds to open files without a log, and closes them.
func timed(dir string, open func(dir string) (closing func() error, err error)) (ms float64, err error) {
	if err := quietly(dir); err != nil {
		return 0, err
	}
	began := time.Now()
	closing, err := open(dir)
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	return float64(took.Nanoseconds()) / 1e6, closing()
}

// growth measures calls, wakes, and openings of the store with increasing numbers of objects and alarms.
func growth(ctx context.Context, b *bench) error {
	h, err := b.open(dohost.Options{}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }() // again, after a failure
	calls := Line{Name: "durable increment of a live object, 1 caller"}
	wakes := Line{Name: "cold wake and read"}
	openings, heaps := Line{Name: "opening the store"}, Line{Name: "heap of a host that was just opened"}
	far := time.Now().Add(1000 * time.Hour)
	have := 0
	for n := 1000; n <= b.objects; n *= 10 {
		if err := armAndAdd(ctx, b, h, have, n, far); err != nil {
			return err
		}
		have = n
		h.evictAll(n)
		b.progress("measuring with %d objects", n)
		call, wake, err := costs(ctx, h, n)
		if err != nil {
			return err
		}
		calls.Points = append(calls.Points, [2]float64{float64(n), call})
		wakes.Points = append(wakes.Points, [2]float64{float64(n), wake})
		ms, heap, err := reopened(h)
		if err != nil {
			return err
		}
		openings.Points = append(openings.Points, [2]float64{float64(n), ms})
		heaps.Points = append(heaps.Points, [2]float64{float64(n), heap})
	}
	x := "objects and alarms stored"
	b.result.Curves = append(b.result.Curves,
		Curve{
			ID: "G", What: "cost of a call, with as many objects on disk, each with an alarm in the future",
			X: x, Y: "µs, p50", Lines: []Line{calls, wakes},
		},
		Curve{ID: "P11", What: "start, with as many alarms in the future", X: x, Y: "ms", Lines: []Line{openings}},
		Curve{
			ID: "P11", What: "memory after the start, with as many alarms in the future",
			X: x, Y: "MiB", Lines: []Line{heaps},
		})
	return nil
}

// reopened closes the host and opens it again, several times. It returns the median time in ms, and the heap in MiB
// afterwards.
func reopened(h *host) (ms, heap float64, err error) {
	var took []float64
	for range openings / 3 {
		if err := h.Close(); err != nil {
			return 0, 0, err
		}
		if err := quietly(h.dir); err != nil {
			return 0, 0, err
		}
		began := time.Now()
		again, err := openIn(h.dir, dohost.Options{}, nil)
		if err != nil {
			return 0, 0, err
		}
		took = append(took, float64(time.Since(began).Nanoseconds())/1e6)
		*h = *again
	}
	h.awaitAlarms()
	bytes, _ := heapAfterGC()
	return median(took), bytes / (1 << 20), nil
}

// awaitAlarms waits until a host that was opened has read the alarms that are due next.
func (h *host) awaitAlarms() {
	for kernel.OfHost(h).Work().Alarms == 0 {
		time.Sleep(time.Millisecond)
	}
}

// armAndAdd makes the objects from have to n, each with a number and an alarm.
func armAndAdd(ctx context.Context, b *bench, h *host, have, n int, far time.Time) error {
	return fillBy(b, have, n, func(i int) error {
		s := subjects.Get(h, name(i))
		if _, err := dohost.Call(ctx, s, (*subject).arm, far); err != nil {
			return err
		}
		_, err := dohost.Call(ctx, s, (*subject).add, 1)
		return err
	})
}

// costs are medians, in µs.
func costs(ctx context.Context, h *host, n int) (call, wake float64, err error) {
	calls, wakes := newHistogram(), newHistogram()
	live := subjects.Get(h, name(0))
	for i := range 2000 {
		began := time.Now()
		if _, err := dohost.Call(ctx, live, (*subject).add, 0); err != nil {
			return 0, 0, err
		}
		if err := calls.RecordValue(time.Since(began).Nanoseconds()); err != nil {
			return 0, 0, err
		}
		s := subjects.Get(h, name(1+(i*7919)%(n-1)))
		h.Evict(s.ID(), dohost.EndFence)
		began = time.Now()
		got, err := dohost.Call(ctx, s, (*subject).get, 0)
		if err == nil && got != 1 {
			err = fmt.Errorf("object %v holds %d, want 1", s.ID(), got)
		}
		if err != nil {
			return 0, 0, err
		}
		if err := wakes.RecordValue(time.Since(began).Nanoseconds()); err != nil {
			return 0, 0, err
		}
	}
	return float64(calls.ValueAtQuantile(50)) / 1000, float64(wakes.ValueAtQuantile(50)) / 1000, nil
}

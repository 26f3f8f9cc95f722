package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dohost/dohost/internal/engine"
)

// countingFS counts the syncs of the write-ahead log.
type countingFS struct {
	vfs.FS
	n atomic.Int64
}

type countingFile struct {
	vfs.File
	n *atomic.Int64
}

// Sync counts.
func (f countingFile) Sync() error { f.n.Add(1); return f.File.Sync() }

// SyncData counts.
func (f countingFile) SyncData() error { f.n.Add(1); return f.File.SyncData() }

// Create makes a file, and counts the syncs of a log.
func (fs *countingFS) Create(path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(path, c)
	return fs.counted(path, f), err
}

// ReuseForWrite makes a file of an old one, and counts the syncs of a log.
func (fs *countingFS) ReuseForWrite(old, path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(old, path, c)
	return fs.counted(path, f), err
}

func (fs *countingFS) counted(path string, f vfs.File) vfs.File {
	if f == nil || !strings.HasSuffix(path, ".log") {
		return f
	}
	return countingFile{f, &fs.n}
}

// raw is the limit: Pebble with the options of the store, and no code of the store. It commits keys and values of the
// same size as dohost.
type raw struct {
	objects int
	callers int // each with its own objects, and one synced commit after the other, or
	depth   int // one goroutine with this many commits in flight
	appends bool
	size    int           // minimum bytes of a batch; 0: no minimum
	pace    time.Duration // between the commits of a caller; 0: none
	commits int           // of an operation, without depth; 0: 1

	dir    string
	fs     countingFS
	db     *pebble.DB
	counts []uint64 // commits of each object; each is written by one goroutine
}

// openRaw opens Pebble in a directory.
func openRaw(dir string, fs vfs.FS) (*pebble.DB, error) {
	o, release := engine.Options(fs, engine.Cache, engine.MemTable)
	defer release()
	o.Logger = quiet{}
	return pebble.Open(filepath.Join(dir, "db"), o)
}

// quiet logs no flushes, prints background errors, and panics for fatal errors.
type quiet struct{}

// Infof does nothing.
func (quiet) Infof(string, ...any) {}

// Errorf prints an error that no caller gets.
func (quiet) Errorf(format string, args ...any) {
	fmt.Fprintln(os.Stderr, "pebble:", fmt.Sprintf(format, args...))
}

// Fatalf panics.
func (quiet) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (r *raw) open(b *bench) (err error) {
	if r.dir, err = b.newDir(); err != nil {
		return err
	}
	r.fs.FS = vfs.Default
	r.counts = make([]uint64, r.objects)
	r.db, err = openRaw(r.dir, &r.fs)
	return err
}

// reopenInTables is the counterpart of the host's.
func (r *raw) reopenInTables() (err error) {
	if err := r.db.Close(); err != nil {
		return err
	}
	if err := quietly(r.dir); err != nil {
		return err
	}
	r.db, err = openRaw(r.dir, &r.fs)
	return err
}

// key has the length of the store's key for such an object.
func (r *raw) key(object int, row uint64) []byte {
	key := append([]byte("osubject\x00"), name(object)...)
	key = append(key, "\x00u"...)
	if r.appends {
		return fmt.Appendf(key, "row/%012d", row)
	}
	return append(key, 'n')
}

// value has the length of a number above 65,535 in the store.
func value(n uint64) []byte {
	return binary.BigEndian.AppendUint32([]byte{1, 0xce}, uint32(n))
}

// batch is one commit: the next number of the object.
func (r *raw) batch(object int) (*pebble.Batch, error) {
	b := r.db.NewBatch()
	return b, r.set(b, object)
}

// set adds the next number of the object to a batch.
func (r *raw) set(b *pebble.Batch, object int) error {
	r.counts[object]++
	n := r.counts[object]
	key, v := r.key(object, n), value(n)
	if more := r.size - b.Len() - len(key) - len(v) - batchEntry; more > 0 {
		v = append(v, make([]byte, more)...)
	}
	return b.Set(key, v, nil)
}

// batchEntry is the bytes that a batch adds to a short key and a short value.
const batchEntry = 3

// work gives each of n callers its own objects: every n-th, from the number of the caller on. So the numbers of one object are
// committed in order, and verify knows the last.
func (r *raw) work(ctx context.Context, m *meter) error {
	if r.depth > 0 {
		return r.pipeline(m)
	}
	first := time.Now()
	return m.each(r.callers, func(caller int, w *worker) error {
		next := first.Add(r.pace * time.Duration(caller) / time.Duration(r.callers))
		for i := caller; !w.over() && ctx.Err() == nil; i += r.callers {
			if i >= r.objects {
				i = caller
			}
			if r.pace > 0 {
				time.Sleep(time.Until(next))
				next = next.Add(r.pace)
			}
			began := time.Now()
			for range max(1, r.commits) {
				if err := r.commit(i); err != nil {
					return err
				}
			}
			w.did(began)
		}
		return nil
	})
}

// commit commits the next number of an object, and returns when it is durable.
func (r *raw) commit(object int) error {
	b, err := r.batch(object)
	if err == nil {
		err = r.db.Apply(b, pebble.Sync)
	}
	return errors.Join(err, b.Close())
}

// pipeline has one goroutine that commits, and one that waits for the syncs in order.
func (r *raw) pipeline(m *meter) error {
	type inFlight struct {
		b     *pebble.Batch
		began time.Time
	}
	w := m.worker()
	ch := make(chan inFlight, r.depth-1)
	var wg sync.WaitGroup
	var waiting error
	wg.Go(func() {
		for f := range ch {
			err := f.b.SyncWait()
			w.did(f.began)
			if err := errors.Join(err, f.b.Close()); err != nil {
				waiting = err
			}
		}
	})
	var err error
	for i := 0; err == nil && time.Now().Before(m.until); i++ {
		var b *pebble.Batch
		began := time.Now()
		if b, err = r.batch(i % r.objects); err == nil {
			err = r.db.ApplyNoSyncWait(b, pebble.Sync)
			ch <- inFlight{b, began}
		}
	}
	close(ch)
	wg.Wait()
	return errors.Join(err, waiting)
}

// verify reads the last number of each object, or all of its rows.
func (r *raw) verify(_ context.Context, done int64) error {
	var sum uint64
	for i := range r.objects {
		n := r.counts[i]
		sum += n
		for row := n; row >= 1; row-- {
			v, c, err := r.db.Get(r.key(i, row))
			if err != nil {
				return err
			}
			got := uint64(binary.BigEndian.Uint32(v[2:]))
			if err := c.Close(); err != nil {
				return err
			}
			if got != row {
				return fmt.Errorf("object %d holds %d, want %d", i, got, row)
			}
			if !r.appends {
				break // the last has overwritten the others
			}
		}
	}
	if want := uint64(done) * uint64(max(1, r.commits)); sum != want {
		return fmt.Errorf("%d commits, %d counted", sum, want)
	}
	return nil
}

func (r *raw) syncs() int64 { return r.fs.n.Load() }

func (r *raw) close() error { return r.db.Close() }

package objectstore

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

const (
	outstanding = 256
	counterSize = 100
)

// token is an output that gives a place among the outstanding ones back.
type token chan struct{}

func (c token) Release(error) { <-c }

func increment(b *testing.B, l live, key []byte, buf []byte) {
	v, ok, err := l.Get(nil, SpaceKV, key)
	if err != nil {
		b.Fatal(err)
	}
	var n uint64
	if ok {
		n = binary.BigEndian.Uint64(v)
	}
	binary.BigEndian.PutUint64(buf, n+1)
	if err := l.Put(SpaceKV, key, buf, false); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkCommit increments one key, with 256 outstanding commits, and compares that with the same writes by the
// engine alone.
func BenchmarkCommit(b *testing.B) {
	for _, where := range []struct {
		name string
		dir  func(b *testing.B) (string, *FS)
	}{
		{"disk", func(b *testing.B) (string, *FS) { return b.TempDir(), nil }},
		{"memory", func(*testing.B) (string, *FS) { return dir, NewMemFS() }},
	} {
		b.Run(where.name+"/batches", func(b *testing.B) {
			d, fs := where.dir(b)
			benchBatches(b, d, fs)
		})
		b.Run(where.name+"/engine", func(b *testing.B) {
			d, fs := where.dir(b)
			benchEngine(b, d, fs)
		})
	}
}

func benchBatches(b *testing.B, d string, fs *FS) {
	s, err := Open(d, &Options{FS: fs})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	o := s.live("counter", "hot")
	key, buf := []byte("n"), make([]byte, counterSize)
	places := make(token, outstanding)
	b.ReportAllocs()
	for b.Loop() {
		places <- struct{}{}
		increment(b, o, key, buf)
		o.Emit(places)
		if err := o.Commit(o.Batch); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(s.Stats().Batches)/float64(max(1, s.Stats().Records)), "batches/record")
}

// benchEngine makes the writes of the counter, without reading it, in batches of its own.
func benchEngine(b *testing.B, d string, fs *FS) {
	o := (&Options{FS: fs}).withDefaults()
	p, release := engineOptions(&o, o.vfs())
	db, err := pebble.Open(d, p)
	release()
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	key, buf := appendObject(nil, ID{"counter", "hot"}), make([]byte, counterSize)
	batches := make(chan *pebble.Batch, outstanding)
	var waiter sync.WaitGroup
	waiter.Go(func() {
		for batch := range batches {
			if err := batch.SyncWait(); err != nil {
				b.Error(err)
			}
			batch.Close()
		}
	})
	b.ReportAllocs()
	for b.Loop() {
		batch := db.NewBatch()
		batch.Set(key, buf, nil)
		if err := db.ApplyNoSyncWait(batch, pebble.Sync); err != nil {
			b.Fatal(err)
		}
		batches <- batch
	}
	close(batches)
	waiter.Wait()
}

// BenchmarkCommitOfManyObjects increments 256 keys of as many objects in turn.
func BenchmarkCommitOfManyObjects(b *testing.B) {
	s, err := Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	objects := make([]live, outstanding)
	for i := range objects {
		objects[i] = s.live("counter", fmt.Sprintf("o%03d", i))
	}
	key, buf := []byte("n"), make([]byte, counterSize)
	places := make(token, outstanding)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		o := objects[i%len(objects)]
		places <- struct{}{}
		increment(b, o, key, buf)
		o.Emit(places)
		if err := o.Commit(o.Batch); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGet reads one durable row, and BenchmarkScan a hundred.
func BenchmarkGet(b *testing.B) {
	s := open(b, NewMemFS(), Options{})
	o := s.live("counter", "cold")
	o.put(b, "n", "1")
	o.commit(b)
	b.ReportAllocs()
	for b.Loop() {
		o.want(b, "n", "1")
	}
}

func BenchmarkScan(b *testing.B) {
	s := open(b, NewMemFS(), Options{})
	o := s.live("list", "l")
	for i := range 100 {
		o.put(b, fmt.Sprintf("row%03d", i), "value")
	}
	o.commit(b)
	b.ReportAllocs()
	for b.Loop() {
		it := o.Scan(Bounds{Space: SpaceKV})
		n := 0
		for it.Next() {
			n++
		}
		if err := it.Close(); err != nil || n != 100 {
			b.Fatal(n, err)
		}
	}
}

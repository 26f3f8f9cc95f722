package objectstore

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// failingReads fails reads of tables while fail is set.
type failingReads struct {
	vfs.FS
	fail atomic.Bool
	on   func() // called before a read fails
}

func (f *failingReads) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, o...)
	if err == nil && strings.HasSuffix(name, ".sst") {
		file = &failingFile{file, f}
	}
	return file, err
}

type failingFile struct {
	vfs.File
	of *failingReads
}

func (f *failingFile) ReadAt(p []byte, off int64) (int, error) {
	if f.of.fail.Load() {
		if f.of.on != nil {
			f.of.on()
		}
		return 0, syscall.EIO
	}
	return f.File.ReadAt(p, off)
}

// droppedCall is a call of Options.OnDropped.
type droppedCall struct {
	id    ID
	epoch Epoch
	cause error
}

// A slot that cannot be read fails its object: the record has the writes of the others.
func TestSlotReadErrorFailsOnlyItsRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := damagedStore(t, true)
		reads := &failingReads{FS: disk.base}
		disk.base = reads
		calls := make(chan droppedCall, 10)
		s := open(t, disk, Options{OnDropped: func(id ID, e Epoch, err error) { calls <- droppedCall{id, e, err} }})
		reads.fail.Store(true)
		j, others := new(releaseLog), new(releaseLog)
		release := disk.HoldSyncs()
		first := s.live("x", "first")
		first.put(t, "k", "v")
		first.commitBatch(t)
		synctest.Wait() // the others share the next record

		bad, good := s.live("c", "n250"), s.live("c", "new")
		bad.SetSlot(Slot{Due: due(9), Generation: s.NewAlarmGeneration()})
		bad.put(t, "other", "lost")
		bad.Emit(entry{j, "bad"})
		bad.commitBatch(t)
		good.put(t, "k", "v")
		good.Emit(entry{others, "good"})
		good.commitBatch(t)
		release()
		synctest.Wait()

		if s.Err() != nil {
			t.Fatalf("the store has failed: %v", s.Err())
		}
		j.want(t, "bad!")
		others.want(t, "good")
		call := <-calls
		if call.id != bad.id || call.epoch != bad.e || !errors.Is(call.cause, syscall.EIO) || len(calls) > 0 {
			t.Errorf("OnDropped: %v", call)
		}
		bad.put(t, "k", "late")
		if err := bad.Commit(bad.Batch); !errors.Is(err, ErrFenced) {
			t.Errorf("the owner hands over: %v", err)
		}
		bad.Discard()
		if !bad.Clean() || s.Stats().Undurable != 0 {
			t.Errorf("clean %v, %d bytes undurable", bad.Clean(), s.Stats().Undurable)
		}

		reads.fail.Store(false)
		again := s.live("c", "n250")
		again.want(t, "k", noise(1000, 250))
		again.absent(t, "other")
		if slot, ok, err := again.Slot(); !ok || err != nil || !slot.Due.Equal(due(251)) {
			t.Errorf("slot %v, %v, %v", slot, ok, err)
		}
		again.SetSlot(Slot{Due: due(9), Generation: s.NewAlarmGeneration()})
		again.commit(t)
		wantConsistent(t, s)
	})
}

// A commit after a layer that fails has been built on it.
func TestCommitTakenBackDropsYoungerBatchToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := damagedStore(t, true)
		reads := &failingReads{FS: disk.base}
		disk.base = reads
		s := open(t, disk, Options{})
		j := new(releaseLog)
		bad := s.live("c", "n250")
		younger := bad.NewBatch(bad.e)
		if err := younger.Put(SpaceKV, []byte("y"), []byte("1"), false); err != nil {
			t.Fatal(err)
		}
		younger.Emit(entry{j, "younger"})
		reads.on = sync.OnceFunc(func() {
			if err := bad.Commit(younger); err != nil {
				t.Error(err)
			}
		})
		reads.fail.Store(true)
		bad.SetSlot(Slot{Due: due(9), Generation: s.NewAlarmGeneration()})
		bad.Emit(entry{j, "older"})
		bad.commitBatch(t)
		j.want(t, "older!", "younger!")
		reads.fail.Store(false)
		s.live("c", "n250").absent(t, "y")
		if !bad.Clean() || s.Stats().Undurable != 0 {
			t.Errorf("clean %v, %d bytes undurable", bad.Clean(), s.Stats().Undurable)
		}
	})
}

// The first record of an import is taken back: the import then removes the rows of an earlier one.
func TestImportTakenBackCanBeRepeated(t *testing.T) {
	_, _, stream := exported(t, 3, 10)
	for what, failures := range map[string]int{"once": 1, "twice": 2} {
		synctest.Test(t, func(t *testing.T) {
			disk := damagedStore(t, true)
			id := ID{"c", "n250"}
			s := open(t, disk, Options{})
			b := pebbleDB(s).NewBatch()
			if err := b.Set(importingKey(id), nil, nil); err != nil {
				t.Fatal(err)
			}
			if err := pebbleDB(s).Apply(b, nil); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			reads := &failingReads{FS: disk.base}
			disk.base = reads
			left := failures
			s = open(t, disk, Options{OnDropped: func(ID, Epoch, error) {
				left--
				reads.fail.Store(left > 0)
			}})
			reads.fail.Store(true)
			err := s.Import(t.Context(), id, bytes.NewReader(stream))
			if !errors.Is(err, syscall.EIO) || left != 0 {
				t.Fatalf("%s: the import: %v, %d records were not taken back", what, err, left)
			}
			rows, err := s.snapshot(t).hasRows(id)
			if err != nil || s.Importing(id) != (failures == 2) || rows != (failures == 2) {
				t.Errorf("%s: importing %v, rows %v, %v", what, s.Importing(id), rows, err)
			}
			if err := s.Import(t.Context(), id, bytes.NewReader(stream)); err != nil {
				t.Errorf("%s: the next import: %v", what, err)
			}
			if s.Importing(id) || s.Stats().Undurable != 0 {
				t.Errorf("%s: importing %v, %d bytes undurable", what, s.Importing(id), s.Stats().Undurable)
			}
			wantConsistent(t, s)
		})
	}
}

func TestSlotInADamagedBlockIsReplaced(t *testing.T) {
	for _, clear := range []bool{false, true} {
		disk := damagedStore(t, true)
		flip(t, disk, damagedAt(t, noise(1000, 150)[:100]))
		s := open(t, disk, Options{})
		o := s.live("c", "n150")
		if _, _, err := o.Slot(); !errors.Is(err, ErrDamaged) {
			t.Fatalf("Slot: %v", err)
		}
		if clear {
			if err := o.DeleteAll(); err != nil {
				t.Fatal(err)
			}
		} else {
			o.SetSlot(Slot{Due: due(9), Generation: 1 << 30})
		}
		o.commit(t)
		o = s.live("c", "n150")
		slot, ok, err := o.Slot()
		if err != nil || ok == clear || ok && slot.Generation != 1<<30 {
			t.Errorf("clear %v: slot %v, %v, %v", clear, slot, ok, err)
		}
	}
}

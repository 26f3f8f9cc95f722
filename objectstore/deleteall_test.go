package objectstore

import (
	"fmt"
	"testing"
	"testing/synctest"
)

// weighingLog is a local log that records the size of its largest record.
type weighingLog struct {
	recordLog
	bytes, entries int // of the largest
}

// Append implements recordLog.
func (l *weighingLog) Append(epoch, tail uint64, r *record) (uint64, error) {
	l.bytes, l.entries = max(l.bytes, r.batch.Len()), max(l.entries, int(pebbleBatch(r).Count()))
	return l.recordLog.Append(epoch, tail, r)
}

// fill makes objects, durable and not in memory: objects is their number, and rows the number of rows of each.
func fill(t *testing.T, s *Store, class string, objects, rows int) (os []live) {
	t.Helper()
	for i := range objects {
		o := s.live(class, fmt.Sprint(i))
		for k := range rows {
			o.put(t, fmt.Sprintf("some-key-%08d-of-a-usual-length", k), "value of a small row")
		}
		o.commit(t)
		os = append(os, s.live(class, fmt.Sprint(i)))
	}
	return os
}

// TestDeleteAllsKeepRecordsSmall deletes all rows of many objects while a record is in flight. Their deletions are in
// records of the usual size, and the committer reads no rows.
func TestDeleteAllsKeepRecordsSmall(t *testing.T) {
	for _, c := range []struct{ objects, rows int }{{200, 500}, {40, maxPointDeletes + 1}} {
		t.Run(fmt.Sprint(c.rows), func(t *testing.T) {
			var reads Reads
			held(t, Options{ReserveBytes: -1, Reads: &reads}, func(t *testing.T, s *Store, fs *FS, _ *releaseLog) {
				os := fill(t, s, "c", c.objects, c.rows)
				synctest.Wait()
				log := &weighingLog{recordLog: s.log}
				s.log = log
				release := fs.HoldSyncs()
				other := s.live("other", "a")
				other.put(t, "n", "1")
				other.commitBatch(t)
				synctest.Wait()
				for _, o := range os {
					if err := o.DeleteAll(); err != nil {
						t.Fatal(err)
					}
					o.commitBatch(t)
				}
				walks, before := reads.Walks.Load(), s.Stats()
				release()
				other.put(t, "n", "2")
				other.commit(t)
				if n := reads.Walks.Load() - walks; n > 0 {
					t.Errorf("the committer opened %d iterators", n)
				}
				if records := s.Stats().Records - before.Records; records < 3 {
					t.Errorf("all deletions are in %d records", records)
				}
				if log.bytes > 5*maxRecord/4 || log.entries > maxRecord/rowOverhead {
					t.Errorf("a record has %d bytes and %d entries", log.bytes, log.entries)
				}
				for i := range os {
					rows, err := collect(s.live("c", fmt.Sprint(i)).Scan(Bounds{Space: SpaceKV}))
					if err != nil || len(rows) > 0 {
						t.Fatalf("object %d has %d rows, %v", i, len(rows), err)
					}
				}
			})
		})
	}
}

// TestDeleteAllRemovesUndurableRows deletes rows that are in flight, committed, or committed by another batch after
// the keys were read.
func TestDeleteAllRemovesUndurableRows(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, _ *releaseLog) {
		o := fill(t, s, "c", 1, 3)[0]
		release := fs.HoldSyncs()
		o.put(t, "in flight", "1")
		o.commitBatch(t)
		synctest.Wait()
		o.put(t, "filling", "1")
		o.commitBatch(t)
		if err := o.DeleteAll(); err != nil {
			t.Fatal(err)
		}
		late := o.NewBatch(o.e)
		if err := late.Put(SpaceKV, []byte("late"), []byte("1"), false); err != nil {
			t.Fatal(err)
		}
		if err := o.Commit(late); err != nil {
			t.Fatal(err)
		}
		again := fs.HoldSyncs()
		release()
		synctest.Wait() // the filling layer is in flight
		o.put(t, "kept", "1")
		o.commitBatch(t)
		again()
		synctest.Wait()
		s.live("c", "0").wants(t, "kept=1")

		// A DeleteAll that replaces another deletes its keys too.
		o = fill(t, s, "c", 1, 3)[0]
		release = fs.HoldSyncs()
		other := s.live("other", "a")
		other.put(t, "n", "1")
		other.commitBatch(t)
		synctest.Wait()
		for range 2 {
			if err := o.DeleteAll(); err != nil {
				t.Fatal(err)
			}
			o.put(t, "between", "1")
			o.commitBatch(t)
		}
		if n := o.filling.clearing.n; n != 5 { // three, kept, between
			t.Errorf("%d keys to delete, want 5", n)
		}
		release()
		synctest.Wait()
		s.live("c", "0").wants(t, "between=1")
	})
}

// TestDeleteAllOfObjectInMemoryReadsNothing has an object that has been in memory since it woke.
func TestDeleteAllOfObjectInMemoryReadsNothing(t *testing.T) {
	var reads Reads
	l := small(t, Options{Reads: &reads})
	l.SetWaking(true)
	l.Prefetch()
	walks, gets := reads.Walks.Load(), reads.Gets.Load()
	if err := l.DeleteAll(); err != nil {
		t.Fatal(err)
	}
	l.commit(t)
	if reads.Walks.Load() != walks || reads.Gets.Load() != gets {
		t.Errorf("%d iterators and %d look-ups", reads.Walks.Load()-walks, reads.Gets.Load()-gets)
	}
	rows, err := collect(l.Range.store.live("c", "a").Scan(Bounds{Space: SpaceKV}))
	if err != nil || len(rows) > 0 {
		t.Errorf("rows %q, %v", rows, err)
	}
}

// TestDeleteAllDelaysOutputs commits a DeleteAll without a write, and an output in a batch of its own.
func TestDeleteAllDelaysOutputs(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		o := s.live("c", "a")
		o.put(t, "n", "1")
		o.commit(t)
		release := fs.HoldSyncs()
		defer release()
		if err := o.DeleteAll(); err != nil {
			t.Fatal(err)
		}
		o.commitBatch(t)
		o.absent(t, "n")
		o.Emit(entry{j, "read"})
		o.commitBatch(t)
		j.want(t)
		release()
		j.want(t, "read")
	})
}

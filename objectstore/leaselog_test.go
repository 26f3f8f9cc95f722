package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/sharedlog"
	"github.com/dohost/dohost/sharedlog/logtest"
)

// leased returns options with a new lease on a log.
func leased(t *testing.T, log *logtest.Log) Options {
	t.Helper()
	lease, err := log.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return Options{Shared: &Shared{Lease: lease, Context: context.WithoutCancel(t.Context())}}
}

// refusesLog opens a store with a new lease on a log, and wants an error with this text.
func refusesLog(t *testing.T, what string, fs *FS, log *logtest.Log, want error, text string) {
	t.Helper()
	o := leased(t, log)
	o.FS = fs
	s, err := Open(dir, &o)
	if err == nil {
		s.Abandon()
	}
	if !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("%s: %v, want %v with %q", what, err, want, text)
	}
}

// TestSharedLogHasEachConfirmedWrite ends hosts after each of their records, and opens the log with a directory that was lost, one
// that a power cut left, and one of an earlier host. The model is a map.
func TestSharedLogHasEachConfirmedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seed = 20261127
		r := rand.New(rand.NewPCG(seed, 0))
		log, model, old := &logtest.Log{}, map[string]string{}, NewMemFS()
		disk := NewMemFS()
		opened := 0
		for range 40 {
			s := open(t, disk, leased(t, log))
			opened++
			want := func(what string) {
				t.Helper()
				for _, name := range []string{"a", "b", "c"} {
					for key := range 3 {
						row := fmt.Sprint(name, key)
						switch v, ok := model[row]; {
						case ok:
							s.live("c", name).want(t, row, v)
						default:
							s.live("c", name).absent(t, row)
						}
					}
				}
				if t.Failed() {
					t.Fatalf("seed %d, %d opened: %s", seed, opened, what)
				}
			}
			want("after the open")
			for range 1 + r.IntN(4) {
				name := string(rune('a' + r.IntN(3)))
				o, row := s.live("c", name), fmt.Sprint(name, r.IntN(3))
				switch v := fmt.Sprint(r.Uint32()); r.IntN(5) {
				case 0:
					if err := o.DeleteAll(); err != nil {
						t.Fatal(err)
					}
					for key := range 3 {
						delete(model, fmt.Sprint(name, key))
					}
				default:
					o.put(t, row, v)
					model[row] = v
				}
				o.commit(t)
			}
			want("before the end")
			if r.IntN(4) == 0 {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			} else {
				s.Abandon()
			}
			switch r.IntN(4) {
			case 0:
				disk = NewMemFS()
			case 1:
				disk = disk.Crash(0, 1)
			case 2: // the directory of an earlier host
				disk, old = old, disk.Crash(r.IntN(101), r.Uint64())
			}
		}
		if opened != 40 || len(log.Records()) < 80 {
			t.Errorf("%d hosts made %d records", opened, len(log.Records()))
		}
	})
}

// TestOwnerThatLostTheLogIsFenced takes a log over from a host that still runs, and does not know it. Its first act is a read, whose answer may
// be old, or a write.
func TestOwnerThatLostTheLogIsFenced(t *testing.T) {
	for _, first := range []string{"read", "write"} {
		synctest.Test(t, func(t *testing.T) {
			log := &logtest.Log{Linger: time.Hour}
			s := open(t, NewMemFS(), leased(t, log))
			o := s.live("c", "a")
			o.put(t, "n", "1")
			o.commit(t)
			next := open(t, NewMemFS(), leased(t, log))
			n := next.live("c", "a")
			n.want(t, "n", "1")
			n.put(t, "n", "2")
			n.commit(t)
			appended := len(log.Records())

			j := new(releaseLog)
			if first == "write" {
				o.put(t, "n", "3")
			}
			o.Emit(entry{j, first})
			if err := o.Commit(o.Batch); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			j.want(t, first+"!")
			if err := s.Err(); !errors.Is(err, ErrFenced) {
				t.Errorf("the store failed with %v", err)
			}
			if err := o.Put(SpaceKV, []byte("n"), []byte("4"), false); err == nil {
				if err := o.Commit(o.Batch); !errors.Is(err, ErrFenced) {
					t.Errorf("a later commit: %v", err)
				}
			}
			if err := s.Close(); !errors.Is(err, ErrFenced) {
				t.Errorf("Close: %v", err)
			}
			if len(log.Records()) != appended {
				t.Error("the former owner has appended a record")
			}
			n.put(t, "m", "1")
			n.commit(t)
			next.Abandon()
			last := open(t, NewMemFS(), leased(t, log)).live("c", "a")
			last.want(t, "n", "2")
			last.want(t, "m", "1")
		})
	}
}

// TestHostWithoutWritesNoticesTheLossOfItsLease has a store that does nothing. After the loss it appends no record, such as the mark of a clean end.
func TestHostWithoutWritesNoticesTheLossOfItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logtest.Log{Linger: time.Second}
		failed := make(chan error, 1)
		o := leased(t, log)
		o.OnFail = func(err error) { failed <- err }
		var records atomic.Int32
		o.Hook = func(stage Stage, _ iter.Seq[ID]) {
			if stage == StageSync {
				records.Add(1)
			}
		}
		s := open(t, NewMemFS(), o)
		records.Store(0) // without the record of Open
		log.Expire()
		time.Sleep(time.Second - 1)
		if err := s.Err(); err != nil {
			t.Errorf("before the loss: %v", err)
		}
		time.Sleep(time.Nanosecond)
		if err := <-failed; !errors.Is(err, ErrFenced) {
			t.Errorf("failed with %v", err)
		}
		if <-s.done; records.Load() > 0 {
			t.Errorf("after the loss the store appended %d records", records.Load())
		}
	})
}

// TestAppendWithUnknownOutcomeIsRepeated has a log that loses records and answers.
func TestAppendWithUnknownOutcomeIsRepeated(t *testing.T) {
	faults := []logtest.Fault{logtest.FaultUnavailable, logtest.FaultLost, logtest.FaultLostAnswer}
	for _, first := range faults {
		for _, second := range faults {
			synctest.Test(t, func(t *testing.T) {
				log := &logtest.Log{}
				calls := 0
				log.OnAppend = func(a logtest.Append) logtest.Fault {
					calls++
					switch a.Attempt {
					case 1:
						return first
					case 2:
						return second
					}
					return logtest.FaultNone
				}
				var lines strings.Builder
				opts := leased(t, log)
				opts.Logger = slog.New(slog.NewTextHandler(&lines, nil))
				s := open(t, NewMemFS(), opts)
				o := s.live("c", "a")
				for i := range 3 {
					o.put(t, "n", fmt.Sprint(i))
					o.commit(t)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if n := len(log.Records()); n != 5 || calls != 15 {
					t.Errorf("faults %d and %d: %d records after %d calls, want 5 after 15", first, second, n, calls)
				}
				if failed, accepted := strings.Count(lines.String(), "has not accepted"), strings.Count(lines.String(), "failures=2"); failed != 3 || accepted != 3 {
					t.Errorf("the errors of 3 records were logged %d times, their ends %d times:\n%s", failed, accepted, &lines)
				}
				log.OnAppend = nil
				again := open(t, NewMemFS(), leased(t, log))
				again.live("c", "a").want(t, "n", "2")
				if !again.Clean() {
					t.Error("the mark of the clean end is missing")
				}
			})
		}
	}
}

// TestRecordOfAnUnknownAppendIsNotApplied ends a host while it does not know whether its record is in the log. The record is not, so
// the next host must not find it in the directory.
func TestRecordOfAnUnknownAppendIsNotApplied(t *testing.T) {
	for _, fault := range []logtest.Fault{logtest.FaultUnavailable, logtest.FaultLost, logtest.FaultLostAnswer} {
		synctest.Test(t, func(t *testing.T) {
			disk, log := NewMemFS(), &logtest.Log{}
			s := open(t, disk, leased(t, log))
			log.OnAppend = func(logtest.Append) logtest.Fault { return fault }
			o, j := s.live("c", "a"), new(releaseLog)
			o.put(t, "n", "1")
			o.Emit(entry{j, "write"})
			o.commitBatch(t)
			time.Sleep(time.Minute)
			j.want(t)
			image := disk.Crash(100, 1)
			s.Abandon()
			j.want(t, "write!")
			log.OnAppend = nil
			next := open(t, image, leased(t, log)).live("c", "a")
			if fault == logtest.FaultLostAnswer {
				next.want(t, "n", "1")
			} else {
				next.absent(t, "n")
			}
			next.put(t, "n", "2")
			next.commit(t)
		})
	}
}

// TestSharedLogOutageDelaysOpenAndCloseForAWhile has a log that never answers.
func TestSharedLogOutageDelaysOpenAndCloseForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logtest.Log{}
		lease := leased(t, log)
		s := open(t, NewMemFS(), lease)
		log.OnAppend = func(logtest.Append) logtest.Fault { return logtest.FaultUnavailable }
		begun := time.Now()
		if err := s.Close(); err == nil || time.Since(begun) < leaseHostTime || time.Since(begun) > leaseHostTime+time.Second {
			t.Errorf("Close after %v: %v", time.Since(begun), err)
		}
		if lease.Shared.Lease.Valid() {
			t.Error("the lease was not released")
		}
		begun = time.Now()
		refusesLog(t, "open", NewMemFS(), log, errNoAnswer, "")
		if took := time.Since(begun); took < leaseHostTime || took > leaseHostTime+time.Second {
			t.Errorf("Open after %v", took)
		}
		log.OnAppend = nil
		if s := open(t, NewMemFS(), leased(t, log)); s.Clean() {
			t.Error("clean without its mark")
		}
	})
}

// TestSharedLogDamageIsRefused damages each record of a log in each way.
func TestSharedLogDamageIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logtest.Log{}
		disk := NewMemFS()
		s := open(t, disk, leased(t, log))
		o := s.live("c", "a")
		for i := range 4 {
			o.put(t, "n", fmt.Sprint(i))
			o.commit(t)
		}
		s.Abandon()
		whole, tried := log.Records(), 0
		refuse := func(what string, records [][]byte, number int) {
			t.Helper()
			log.Corrupt(records)
			refusesLog(t, what, NewMemFS(), log, ErrLogDamaged, fmt.Sprintf("record %d: ", number))
			tried++
		}
		for i := range whole {
			for bit := 0; bit < 8*len(whole[i]); bit += 97 {
				records := clones(whole)
				records[i][bit/8] ^= 1 << (bit % 8)
				refuse(fmt.Sprintf("bit %d of record %d", bit, i+1), records, i+1)
			}
			cut := clones(whole)
			cut[i] = cut[i][:len(cut[i])-1]
			refuse("a record that is cut off", cut, i+1)
			long := clones(whole)
			long[i] = append(long[i], 0)
			refuse("a record with another byte", long, i+1)
			if i+1 < len(whole) {
				swapped := clones(whole)
				swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
				refuse("two records swapped", swapped, i+1)
				refuse("a missing record", slices.Delete(clones(whole), i, i+1), i+1)
				refuse("a repeated record", slices.Insert(clones(whole), i+1, bytes.Clone(whole[i])), i+2)
			}
		}
		// The directory has records that the log has lost or replaced.
		for lost := 1; lost < len(whole); lost++ {
			log.Corrupt(whole[:len(whole)-lost])
			refusesLog(t, "a log without its newest records", disk.Crash(100, 1), log, ErrLogDamaged, fmt.Sprintf("record %d: it is missing", len(whole)-lost+1))
			tried++
		}
		log.Corrupt(whole[:3])
		other := open(t, NewMemFS(), leased(t, log))
		o = other.live("c", "a")
		for range 4 {
			o.put(t, "n", "another history")
			o.commit(t)
		}
		other.Abandon()
		refusesLog(t, "another history", disk.Crash(100, 1), log, ErrLogDamaged, fmt.Sprintf("record %d: the directory has another one", len(whole)))
		log.Corrupt(whole)
		open(t, disk.Crash(100, 1), leased(t, log)).live("c", "a").want(t, "n", "3")
		if tried < 60 {
			t.Errorf("only %d damages were tried", tried)
		}
	})
}

func clones(records [][]byte) (copies [][]byte) {
	for _, r := range records {
		copies = append(copies, bytes.Clone(r))
	}
	return copies
}

// TestSharedLogOfAnotherStoreIsRefused mixes directories and logs that do not belong together.
func TestSharedLogOfAnotherStoreIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := func() (*FS, *logtest.Log, *Store) {
			disk, log := NewMemFS(), &logtest.Log{}
			s := open(t, disk, leased(t, log))
			o := s.live("c", "a")
			o.put(t, "n", "1")
			o.commit(t)
			return disk, log, s
		}
		disk, log, s := made()
		if err := s.Backup(t.Context(), "/copy"); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		_, other, s2 := made()
		s2.Abandon()
		local := NewMemFS()
		if err := open(t, local, Options{}).Close(); err != nil {
			t.Fatal(err)
		}

		refusesLog(t, "a log of another store", disk.Crash(100, 1), other, ErrSharedHistory, "the log has store")
		refusesLog(t, "an empty log", disk.Crash(100, 1), &logtest.Log{}, ErrSharedHistory, "the log is empty")
		refusesLog(t, "a store without a shared log", local.Crash(100, 1), log, ErrSharedHistory, "the log has store")
		refusesLog(t, "a store without a shared log, and an empty log", local, &logtest.Log{}, ErrSharedHistory, "the log is empty")
		if _, err := Open(dir, &Options{FS: disk.Crash(100, 1)}); !errors.Is(err, ErrSharedHistory) {
			t.Errorf("open without a lease: %v", err)
		}
		o := leased(t, log)
		o.FS, o.Ship = NewMemFS(), &Shipping{Archive: newMemArchive(), Context: t.Context()}
		if _, err := Open(dir, &o); !errors.Is(err, errkind.ErrMisuse) {
			t.Errorf("open with a lease and an archive: %v", err)
		}
		if names, err := o.FS.base.List(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a refused open has made %v, %v", names, err)
		}

		// The backup begins a history of its own.
		o = leased(t, log)
		o.FS = disk
		if _, err := Open("/copy", &o); !errors.Is(err, ErrSharedHistory) {
			t.Errorf("open of a backup with a lease: %v", err)
		}
		for range 2 {
			b, err := Open("/copy", &Options{FS: disk})
			if err != nil {
				t.Fatal(err)
			}
			b.live("c", "a").want(t, "n", "1")
			if row, left, err := b.applied(); left || err != nil {
				t.Errorf("the backup is at record %d of the log, %v", row.at.Number, err)
			}
			if b.Identity().Store != s.Identity().Store || b.Identity().Fork == s.Identity().Fork {
				t.Errorf("the backup has identity %v, its source %v", b.Identity(), s.Identity())
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}
		last := open(t, disk, leased(t, log))
		if last.Identity() != s.Identity() || !last.Clean() {
			t.Errorf("the store is %v, clean %v; it was %v", last.Identity(), last.Clean(), s.Identity())
		}
	})
}

// TestGenerationIsThatOfTheLease opens a directory with leases that other hosts have used in between.
func TestGenerationIsThatOfTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, log := NewMemFS(), &logtest.Log{}
		var settings []uint64
		for range 3 {
			for range 2 {
				leased(t, log)
			}
			o := leased(t, log)
			s := open(t, disk, o)
			if s.Generation() != o.Shared.Lease.Generation() {
				t.Errorf("generation %d, that of the lease is %d", s.Generation(), o.Shared.Lease.Generation())
			}
			settings = append(settings, s.NewAlarmGeneration())
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.IsSorted(settings) {
			t.Errorf("generations of alarms: %v", settings)
		}
		refusesLog(t, "an old generation", disk, &logtest.Log{}, ErrSharedHistory, "")
		old := &generationLease{Lease: leased(t, log).Shared.Lease, generation: 4}
		o := Options{FS: disk, Shared: &Shared{Lease: old, Context: t.Context()}}
		if _, err := Open(dir, &o); !errors.Is(err, ErrLogDamaged) {
			t.Errorf("open with an old generation: %v", err)
		}
	})
}

// generationLease is a lease of a faulty log.
type generationLease struct {
	sharedlog.Lease
	generation uint64
}

func (l *generationLease) Generation() uint64 { return l.generation }

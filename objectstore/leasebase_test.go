package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dohost/dohost/internal/frame"
	"github.com/dohost/dohost/sharedlog"
	"github.com/dohost/dohost/sharedlog/logtest"
)

// cutting returns options with a new lease on a log that gets bases in small parts. after is the option BaseAfter. The lease counts the
// bases that are read.
func cutting(t *testing.T, log *logtest.Log, after int64) (Options, *baseLease) {
	o := leased(t, log)
	l := &baseLease{Lease: o.Shared.Lease}
	o.Shared.Lease, o.Shared.BaseAfter, o.Shared.part = l, after, 60
	return o, l
}

// baseLease is a lease with other methods for bases.
type baseLease struct {
	sharedlog.Lease
	reads   int
	writes  func(context.Context) error // called before each WriteBase, unless it is nil
	purging func(context.Context) error // the same of Purge
	// cut is how many bytes of a base can be read, the last time or, with early, each time; zero means all.
	cut   int64
	early bool
	wrote int // bytes of bases
}

func (l *baseLease) ReadBase(ctx context.Context) (io.ReadCloser, error) {
	l.reads++
	r, err := l.Lease.ReadBase(ctx)
	if l.cut == 0 || err != nil || l.reads == 1 && !l.early {
		return r, err
	}
	return io.NopCloser(io.MultiReader(io.LimitReader(r, l.cut), iotest.ErrReader(errors.New("by the test")))), nil
}

func (l *baseLease) WriteBase(ctx context.Context, number uint64, write func(io.Writer) error) error {
	if l.writes != nil {
		if err := l.writes(ctx); err != nil {
			return err
		}
	}
	return l.Lease.WriteBase(ctx, number, func(to io.Writer) error {
		return write(io.MultiWriter(to, (*countedBytes)(&l.wrote)))
	})
}

type countedBytes int

func (c *countedBytes) Write(b []byte) (int, error) { *c += countedBytes(len(b)); return len(b), nil }

func (l *baseLease) Purge(ctx context.Context, before uint64) error {
	if l.purging != nil {
		if err := l.purging(ctx); err != nil {
			return err
		}
	}
	return l.Lease.Purge(ctx, before)
}

// workOn commits values to a row of an object, each in a record.
func workOn(t *testing.T, s *Store, from, to int) {
	t.Helper()
	o := s.live("c", "a")
	for i := from; i <= to; i++ {
		o.put(t, "n", fmt.Sprint(i))
		o.put(t, fmt.Sprint("row", i%5), fmt.Sprint(i))
		o.commit(t)
	}
}

// imageOf returns a copy of the directory with all records, as the end of the process leaves it later.
func imageOf(t *testing.T, s *Store, disk *FS) *FS {
	t.Helper()
	if err := pebbleDB(s).LogData(nil, pebble.Sync); err != nil { // the engine keeps the end of its log in memory
		t.Fatal(err)
	}
	return disk.Crash(100, 1)
}

// TestLogIsCut ends hosts at random among bases and purges with faults, and opens the log with directories that are lost, old, or left
// by a power cut. The model is a map.
func TestLogIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seed = 20261127
		r, faults := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2)) // faults is of the goroutine that writes bases
		log, model := &logtest.Log{}, map[string]string{}
		log.OnBase = func(logtest.BaseStep) logtest.Fault { return logtest.Fault(max(0, faults.IntN(8)-4)) }
		disk, old := NewMemFS(), NewMemFS()
		var restored, written, failures, longest int
		for n := range 150 {
			o, l := cutting(t, log, int64(1+r.IntN(3000)))
			s := open(t, disk, o)
			restored += l.reads
			for key := range 20 {
				row := fmt.Sprint("row", key)
				if v, ok := model[row]; ok {
					s.live("c", "a").want(t, row, v)
				} else {
					s.live("c", "a").absent(t, row)
				}
			}
			if t.Failed() {
				t.Fatalf("seed %d, host %d", seed, n)
			}
			for range r.IntN(12) {
				row, v := fmt.Sprint("row", r.IntN(20)), fmt.Sprint(r.Uint32())
				o := s.live("c", "a")
				o.put(t, row, v)
				o.commit(t)
				model[row] = v
				if r.IntN(3) == 0 {
					synctest.Wait()
				}
			}
			if r.IntN(3) == 0 {
				time.Sleep(time.Duration(r.IntN(5000)) * time.Millisecond)
			}
			st := s.Stats().Shared
			written, failures = written+int(st.Written), failures+int(st.Failures)
			longest = max(longest, len(log.Records()))
			if s.Abandon(); r.IntN(4) == 0 {
				disk = NewMemFS()
			} else if r.IntN(2) == 0 {
				disk = disk.Crash(r.IntN(101), r.Uint64())
			} else if r.IntN(2) == 0 {
				disk, old = old, disk.Crash(100, r.Uint64())
			}
		}
		t.Logf("%d bases were written, %d attempts failed, %d were read, the log had at most %d records", written, failures, restored, longest)
		if written < 30 || failures < 10 || restored < 20 || longest > 150 {
			t.Errorf("seed %d: %d bases were written, %d attempts failed, %d were read, the log had at most %d records", seed, written, failures, restored, longest)
		}
	})
}

// TestBaseIsPublishedBeforeRecordsArePurged has each fault of a base and of a purge.
func TestBaseIsPublishedBeforeRecordsArePurged(t *testing.T) {
	for _, purge := range []bool{false, true} {
		for fault := logtest.FaultUnavailable; fault <= logtest.FaultLostAnswer; fault++ {
			synctest.Test(t, func(t *testing.T) {
				log := &logtest.Log{}
				var steps []string
				calls := 0
				log.OnBase = func(b logtest.BaseStep) logtest.Fault {
					base, _ := log.Base()
					if b.Purge && b.Number > base {
						t.Errorf("the records before %d are purged, and the base is of record %d", b.Number, base)
					}
					steps = append(steps, map[bool]string{false: "base", true: "purge"}[b.Purge])
					if calls++; b.Purge == purge && calls <= 2 {
						return fault
					}
					return logtest.FaultNone
				}
				o, _ := cutting(t, log, 1000)
				o.OnFail = func(err error) { t.Errorf("the store has failed: %v", err) }
				s := open(t, NewMemFS(), o)
				workOn(t, s, 1, 8)
				synctest.Wait()
				whole := !purge && fault != logtest.FaultNone
				if n := len(log.Records()); whole && n != 9 {
					t.Errorf("%d records are left after a base that has failed", n)
				}
				if st := s.Stats().Shared; st.Failures != 1 || st.Err == nil {
					t.Errorf("%+v after a failure", st)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				want := []string{"base", "base", "purge"}
				switch {
				case purge:
					want = []string{"base", "purge", "purge"}
				case fault != logtest.FaultNone:
					want = []string{"base", "base", "base", "purge"}
				}
				if !slices.Equal(steps, want) {
					t.Errorf("purge %v, fault %d: the steps are %v, want %v", purge, fault, steps, want)
				}
				if st := s.Stats().Shared; st.Err != nil || st.Written != 1 || st.Base == 0 {
					t.Errorf("%+v in the end", st)
				}
				s.Abandon()
				next, _ := cutting(t, log, 1000)
				open(t, NewMemFS(), next).live("c", "a").want(t, "n", "8")
			})
		}
	}
}

// TestBasesDoNotDelayCommits has a base that takes an hour.
func TestBasesDoNotDelayCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logtest.Log{}
		o, l := cutting(t, log, 1000)
		release := make(chan struct{})
		l.writes = func(context.Context) error { <-release; return nil }
		s := open(t, NewMemFS(), o)
		workOn(t, s, 1, 100)
		base, _ := log.Base()
		if base != 0 || len(log.Records()) != 101 {
			t.Fatalf("base %d, %d records", base, len(log.Records()))
		}
		close(release)
		synctest.Wait()
		if base, _ = log.Base(); base == 0 || s.Stats().Shared.Written < 1 {
			t.Errorf("base %d", base)
		}
		s.Abandon()
		next, _ := cutting(t, log, 1000)
		open(t, NewMemFS(), next).live("c", "a").want(t, "n", "100")
	})
}

// TestCloseEndsABase closes a store while a base is written, or records are purged.
func TestCloseEndsABase(t *testing.T) {
	endless := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	deaf := func(context.Context) error { time.Sleep(time.Hour); return errors.New("by the test") }
	for _, c := range []struct {
		set   func(*baseLease)
		limit time.Duration
	}{
		{func(l *baseLease) { l.writes = endless }, 0},
		{func(l *baseLease) { l.purging = endless }, 0},
		{func(l *baseLease) { l.writes = deaf }, logBaseCloseTime},
		{func(l *baseLease) { l.purging = deaf }, logBaseCloseTime},
	} {
		synctest.Test(t, func(t *testing.T) {
			log := &logtest.Log{}
			o, l := cutting(t, log, 1000)
			c.set(l)
			s := open(t, NewMemFS(), o)
			workOn(t, s, 1, 10)
			synctest.Wait()
			begun := time.Now()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(begun); took != c.limit {
				t.Errorf("Close has taken %v, want %v", took, c.limit)
			}
			next, _ := cutting(t, log, 1000)
			if s := open(t, NewMemFS(), next); !s.Clean() {
				t.Error("the mark of the clean end is missing")
			}
			time.Sleep(2 * time.Hour) // the end of the deaf method
		})
	}
}

// TestFailureIsReportedBeforeABaseEnds has a store that fails while a base is written that does not end. Until OnFail the host
// does not close itself.
func TestFailureIsReportedBeforeABaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, failed := &logtest.Log{Linger: time.Hour}, make(chan error, 2)
		o, l := cutting(t, log, 1000)
		l.writes = func(context.Context) error { time.Sleep(time.Hour); return errors.New("by the test") }
		o.OnFail = func(err error) { failed <- err }
		s := open(t, NewMemFS(), o)
		workOn(t, s, 1, 10)
		synctest.Wait()
		begun := time.Now()
		log.Expire()
		r := s.live("c", "reader")
		r.Emit(entry{new(releaseLog), "read"})
		r.commitBatch(t)
		if err := <-failed; !errors.Is(err, errLeaseLost) || time.Since(begun) > 0 {
			t.Errorf("OnFail after %v: %v", time.Since(begun), err)
		}
		if err := s.Close(); !errors.Is(err, errLeaseLost) {
			t.Errorf("Close: %v", err)
		}
		if len(failed) > 0 {
			t.Error("OnFail was called twice")
		}
		time.Sleep(2 * time.Hour) // the end of the base
	})
}

// TestOwnerThatLostTheLogCutsNothing has a base of a former owner that ends late. The next owner has written one, or not.
func TestOwnerThatLostTheLogCutsNothing(t *testing.T) {
	for _, cut := range []bool{false, true} {
		for _, purging := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				log := &logtest.Log{Linger: time.Hour}
				o, l := cutting(t, log, 1000)
				release := make(chan struct{})
				late := func(context.Context) error { <-release; return nil }
				if l.writes = late; purging {
					l.writes, l.purging = nil, late
				}
				s := open(t, NewMemFS(), o)
				workOn(t, s, 1, 10)
				synctest.Wait()
				before, _ := log.Base()
				if (before > 0) != purging {
					t.Fatalf("the base is of record %d", before)
				}
				after := int64(1 << 30)
				if cut {
					after = 1000
				}
				next, _ := cutting(t, log, after)
				n := open(t, NewMemFS(), next)
				workOn(t, n, 11, 60)
				synctest.Wait()
				base, _ := log.Base()
				records := len(log.Records())
				if cut != (base > 12) {
					t.Fatalf("the base of the next owner is of record %d", base)
				}
				close(release)
				time.Sleep(time.Second)
				if b, _ := log.Base(); b != base || len(log.Records()) != records {
					t.Errorf("the former owner has changed the base from %d to %d, and the records from %d to %d", base, b, records, len(log.Records()))
				}
				if st := s.Stats().Shared; !errors.Is(st.Err, sharedlog.ErrFenced) {
					t.Errorf("the former owner has %+v", st)
				}
				n.Abandon()
				last, _ := cutting(t, log, 1<<30)
				open(t, NewMemFS(), last).live("c", "a").want(t, "n", "60")
			})
		}
	}
}

// TestDirectoryThatIsNewEnoughIsKept opens directories of each record before and after a base, with a log that was cut and one that
// was not. A base is read only if the log lacks the successor of the directory's record.
func TestDirectoryThatIsNewEnoughIsKept(t *testing.T) {
	for _, purged := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			log, disk := &logtest.Log{}, NewMemFS()
			if !purged {
				log.OnBase = func(b logtest.BaseStep) logtest.Fault {
					if b.Purge {
						return logtest.FaultUnavailable
					}
					return logtest.FaultNone
				}
			}
			o, _ := cutting(t, log, 1500)
			s := open(t, disk, o)
			images := []*FS{imageOf(t, s, disk)} // by the number of the record, from 1
			for i := 1; i <= 20; i++ {
				workOn(t, s, i, i)
				synctest.Wait()
				images = append(images, imageOf(t, s, disk))
			}
			base, _ := log.Base()
			if base < 5 || base > 19 {
				t.Fatalf("the base is of record %d", base)
			}
			s.Abandon()
			for i, image := range images {
				o, l := cutting(t, log, 1<<30)
				n := open(t, image, o)
				n.live("c", "a").want(t, "n", "20")
				wantConsistent(t, n)
				n.Abandon()
				if number, reads := uint64(i+1), l.reads; purged && number < base && reads != 2 || (!purged || number >= base) && reads != 0 {
					t.Errorf("purged %v, base %d, a directory with record %d: the base was read %d times", purged, base, number, reads)
				}
			}
		})
	}
}

// TestPurgeOfAnEarlierHostIsCompleted ends a host after its base.
func TestPurgeOfAnEarlierHostIsCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logtest.Log{}
		o, l := cutting(t, log, 1000)
		l.purging = func(context.Context) error { return errors.New("by the test") }
		s := open(t, NewMemFS(), o)
		workOn(t, s, 1, 10)
		synctest.Wait()
		s.Abandon()
		base, _ := log.Base()
		if base == 0 || len(log.Records()) != 11 {
			t.Fatalf("base %d, %d records", base, len(log.Records()))
		}
		next, _ := cutting(t, log, 1<<30)
		n := open(t, NewMemFS(), next)
		synctest.Wait()
		if records := len(log.Records()); records != 13-int(base) {
			t.Errorf("%d records are left after base %d", records, base)
		}
		n.live("c", "a").want(t, "n", "10")
	})
}

// TestPurgeOfAFullLog has a log without room for a base, and with records that the host before it has not purged.
func TestPurgeOfAFullLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, failed := &logtest.Log{}, errors.New("by the test")
		o, l := cutting(t, log, 1000)
		l.purging = func(context.Context) error { return failed }
		s := open(t, NewMemFS(), o)
		workOn(t, s, 1, 10)
		synctest.Wait()
		l.writes = l.purging
		workOn(t, s, 11, 30)
		s.Abandon()
		base, _ := log.Base()

		next, l := cutting(t, log, 1)
		purged := false
		l.purging = func(context.Context) error { purged = true; return nil }
		l.writes = func(context.Context) error {
			if !purged {
				return failed
			}
			return nil
		}
		n := open(t, NewMemFS(), next)
		time.Sleep(time.Hour)
		if st := n.Stats().Shared; base == 0 || st.Base <= base || st.Failures > 0 {
			t.Errorf("base %d is followed by %+v", base, st)
		}
		n.live("c", "a").want(t, "n", "30")
	})
}

// TestBasesAreNotLargerThanTheirRecords has a large state that changes little.
func TestBasesAreNotLargerThanTheirRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, records := &logtest.Log{}, 0
		o, l := cutting(t, log, 1000)
		log.OnAppend = func(logtest.Append) logtest.Fault { records++; return logtest.FaultNone }
		s := open(t, NewMemFS(), o)
		a := s.live("c", "large")
		a.put(t, "row", strings.Repeat("x", 20_000))
		a.commit(t)
		synctest.Wait()
		for i := range 500 {
			workOn(t, s, i, i)
			synctest.Wait()
		}
		if st := s.Stats().Shared; st.Written < 3 || l.wrote > 20_000+records*400 {
			t.Errorf("%d bases of %d bytes were written for %d records", st.Written, l.wrote, records)
		}
	})
}

// TestBaseFollowsManyShortRuns has hosts that write less than the limit, with the directory of the one before and with an empty one.
func TestBaseFollowsManyShortRuns(t *testing.T) {
	for _, empty := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			log, disk := &logtest.Log{}, NewMemFS()
			var bases []uint64
			for i := range 40 {
				if empty {
					disk = NewMemFS()
				}
				o, _ := cutting(t, log, 4000)
				s := open(t, disk, o)
				workOn(t, s, i, i)
				synctest.Wait()
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if base, _ := log.Base(); base > 0 && !slices.Contains(bases, base) {
					bases = append(bases, base)
				}
			}
			if len(bases) < 3 || len(log.Records()) > 60 {
				t.Errorf("empty %v: the bases are %v, and the log has %d records", empty, bases, len(log.Records()))
			}
		})
	}
}

// logWithBase returns a log with a base, and an image of the directory from before it: it has n = 1 where the log has 30.
func logWithBase(t *testing.T) (*logtest.Log, *FS) {
	t.Helper()
	log, disk := &logtest.Log{}, NewMemFS()
	o, _ := cutting(t, log, 3000)
	s := open(t, disk, o)
	workOn(t, s, 1, 1)
	old := imageOf(t, s, disk)
	workOn(t, s, 2, 30)
	synctest.Wait()
	s.Abandon()
	return log, old
}

// TestBaseWithDamageIsRefused damages the base in each way. The old directory keeps its rows.
func TestBaseWithDamageIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, old := logWithBase(t)
		number, whole := log.Base()
		if number < 5 {
			t.Fatalf("the base is of record %d", number)
		}
		tried := 0
		refuse := func(what string, content []byte) {
			t.Helper()
			tried++
			log.CorruptBase(content)
			refusesLog(t, what, NewMemFS(), log, ErrLogDamaged, fmt.Sprintf("base of record %d", number))
			image := old.Crash(100, 1)
			refusesLog(t, what, image, log, ErrLogDamaged, fmt.Sprintf("base of record %d", number))
			kept := open(t, image, Options{ReadOnly: true})
			kept.live("c", "a").want(t, "n", "1")
			kept.Abandon()
		}
		for bit := 0; bit < 8*len(whole); bit += 61 {
			b := bytes.Clone(whole)
			b[bit/8] ^= 1 << (bit % 8)
			refuse(fmt.Sprintf("bit %d", bit), b)
		}
		for size := 0; size < len(whole); size += 11 {
			refuse(fmt.Sprintf("%d bytes", size), whole[:size])
		}
		refuse("another byte", append(bytes.Clone(whole), 0))
		refuse("a repeated base", slices.Concat(whole, whole))
		if tried < 50 {
			t.Errorf("only %d damages were tried", tried)
		}
		log.CorruptBase(whole)
		open(t, old, leased(t, log)).live("c", "a").want(t, "n", "30")
	})
}

// TestBaseOfAnotherHistoryIsRefused has a base of another store with the same number, and one of another record.
func TestBaseOfAnotherHistoryIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := func(last int) (*logtest.Log, uint64, []byte) {
			log := &logtest.Log{}
			o, _ := cutting(t, log, 1000)
			s := open(t, NewMemFS(), o)
			for i := 1; i <= last; i++ {
				workOn(t, s, i, i)
				synctest.Wait()
			}
			s.Abandon()
			number, content := log.Base()
			return log, number, content
		}
		log, number, _ := made(20)
		for _, last := range []int{20, 40} {
			_, other, content := made(last)
			if (other == number) != (last == 20) {
				t.Fatalf("the bases are of records %d and %d", number, other)
			}
			log.CorruptBase(content)
			refusesLog(t, "another base", NewMemFS(), log, ErrLogDamaged, fmt.Sprintf("base of record %d", number))
		}
	})
}

// TestPurgeWithoutABaseIsRefused has logs that have purged more than their base has.
func TestPurgeWithoutABaseIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logtest.Log{}
		disk := NewMemFS()
		o, _ := cutting(t, log, 3000)
		s := open(t, disk, o)
		workOn(t, s, 1, 30)
		synctest.Wait()
		s.Abandon()
		for _, base := range []uint64{0, 1, 5} {
			for _, image := range []*FS{NewMemFS(), disk.Crash(0, 1)} {
				o := leased(t, log)
				o.Shared.Lease = &oldBase{o.Shared.Lease, base}
				o.FS = image
				if _, err := Open(dir, &o); !errors.Is(err, ErrLogDamaged) || !errors.Is(err, sharedlog.ErrPurged) {
					t.Errorf("a lease with base %d: %v", base, err)
				}
			}
		}
	})
}

// oldBase is a lease of a faulty log, which has an older base than its purges need.
type oldBase struct {
	sharedlog.Lease
	number uint64
}

func (l *oldBase) Base() uint64 { return l.number }

// TestRestoreOfABaseMayFail has a base that cannot be read to its end, with an empty directory and with an old one.
func TestRestoreOfABaseMayFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, old := logWithBase(t)
		_, content := log.Base()
		tried, marked := 0, 0
		for _, empty := range []bool{true, false} {
			for cut := int64(1); cut < int64(len(content)); cut += 20 {
				tried++
				o, l := cutting(t, log, 1<<30)
				l.cut, l.early = cut, empty
				if o.FS = old.Crash(100, 1); empty {
					o.FS = NewMemFS()
				}
				if _, err := Open(dir, &o); err == nil || !strings.Contains(err.Error(), "by the test") {
					t.Fatalf("a base that ends after %d bytes: %v", cut, err)
				}
				if s, err := Open(dir, &Options{FS: o.FS.Crash(100, 1), ReadOnly: true}); err == nil {
					t.Errorf("a restore of %d bytes was opened without its end", cut)
					s.Abandon()
				} else if strings.Contains(err.Error(), "not restored completely") {
					marked++
				}
				again, l := cutting(t, log, 1<<30)
				n := open(t, o.FS, again)
				n.live("c", "a").want(t, "n", "30")
				if l.reads != 1 { // the directory has nothing to lose, so the base is not verified first
					t.Errorf("after a restore of %d bytes the base was read %d times", cut, l.reads)
				}
				wantConsistent(t, n)
				n.Abandon()
			}
		}
		if tried < 20 || marked < 10 {
			t.Errorf("%d failures were tried, %d left an incomplete restore", tried, marked)
		}
	})
}

// TestRestoreOfABaseMayEndAnywhere cuts the power during the restore of a base, before each write to the disk, with an empty directory
// and with one whose rows are not those of the base. The next host opens the directory.
func TestRestoreOfABaseMayEndAnywhere(t *testing.T) {
	synctest.Test(t, testRestoreOfABase)
}

func testRestoreOfABase(t *testing.T) {
	log, made := &logtest.Log{}, NewMemFS()
	old := func() *FS {
		o, _ := cutting(t, log, 30_000)
		o.MemTable = 64 << 10
		s := open(t, made, o)
		for i := range 20 { // rows that the base does not have
			a := s.live("c", "gone")
			a.put(t, fmt.Sprint("row", i), strings.Repeat("x", 1000))
			a.commit(t)
		}
		old := imageOf(t, s, made)
		gone := s.live("c", "gone")
		if err := gone.DeleteAll(); err != nil {
			t.Fatal(err)
		}
		gone.commit(t)
		workOn(t, s, 1, 1)
		for i := range 60 {
			a := s.live("c", "b")
			a.put(t, fmt.Sprint("row", i), strings.Repeat("y", 3000))
			a.commit(t)
		}
		time.Sleep(time.Minute)
		workOn(t, s, 2, 9)
		s.Abandon()
		return old
	}()
	if base, _ := log.Base(); base < 30 {
		t.Fatalf("the base is of record %d", base)
	}
	tried, incomplete := 0, 0
	for _, empty := range []bool{true, false} {
		for n := int64(1); ; n++ {
			func() {
				disk := NewMemFS()
				if !empty {
					disk = old.Crash(100, 1)
				}
				var image *FS
				disk.OnWrite(func(_, _ string, m int64) error {
					if m == n {
						image = disk.Crash([]int{0, 50, 100}[n%3], uint64(n))
					}
					return nil
				})
				o, l := cutting(t, log, 1<<30)
				o.MemTable = 64 << 10
				s := open(t, disk, o)
				if l.reads == 0 {
					t.Error("no base was read")
				}
				disk.OnWrite(nil)
				s.Abandon()
				if image == nil {
					n = -1
					return
				}
				tried++
				o, l = cutting(t, log, 1<<30)
				next := open(t, image, o)
				if l.reads > 0 {
					incomplete++
				}
				next.live("c", "a").want(t, "n", "9")
				next.live("c", "gone").absent(t, "row3")
				next.live("c", "b").want(t, "row59", strings.Repeat("y", 3000))
				wantConsistent(t, next)
				next.Abandon()
			}()
			if n < 0 {
				break
			}
			if t.Failed() {
				t.Fatalf("empty %v, write %d", empty, n)
			}
		}
	}
	t.Logf("%d ends were tried, %d needed the base again", tried, incomplete)
	if tried < 40 || incomplete < 20 {
		t.Errorf("%d ends were tried, %d needed the base again", tried, incomplete)
	}
}

// TestLeaseLogRefusesAnAppliedRowOfAnotherFormat has a row that is shorter, and one of another version.
func TestLeaseLogRefusesAnAppliedRowOfAnotherFormat(t *testing.T) {
	r := appliedRow{at: frame.Position{Fork: 1, Generation: 2, Number: 3, Time: 4}, since: 5}
	b := r.encode()
	if got, err := decodeApplied(b); err != nil || got != r {
		t.Errorf("decoded %+v, %v, want %+v", got, err, r)
	}
	later := append([]byte{appliedVersion + 1}, b[1:]...)
	for _, b := range [][]byte{nil, b[:len(b)-1], later} {
		if got, err := decodeApplied(b); !errors.Is(err, ErrFormat) {
			t.Errorf("%x: %+v, %v", b, got, err)
		}
	}
}

// TestRestoreOfABaseNeedsItsEnd has a base that can be read whole, but the reader then returns an error instead of io.EOF.
func TestRestoreOfABaseNeedsItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, _ := logWithBase(t)
		_, content := log.Base()
		o, l := cutting(t, log, 1<<30)
		l.cut, l.early = int64(len(content)), true
		o.FS = NewMemFS()
		s, err := Open(dir, &o)
		if err == nil {
			s.Abandon()
		}
		if err == nil || !strings.Contains(err.Error(), "by the test") {
			t.Errorf("opened with %v", err)
		}
	})
}

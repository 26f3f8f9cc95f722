package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// shipFor puts a row each 20 seconds, for some minutes.
func shipFor(t *testing.T, s *Store, minutes int) {
	t.Helper()
	for i := range 3 * minutes {
		put(t, s, "o", "n", fmt.Sprint(i))
		time.Sleep(20 * time.Second)
	}
}

// TestArchiveThatLosesObjectsGetsABase empties an archive, sets it back and replaces it while a host ships to it: always
// between two checks, so that the archive has a newer object before the next one.
func TestArchiveThatLosesObjectsGetsABase(t *testing.T) {
	for name, change := range map[string]func(a *memArchive, early map[string][]byte){
		"emptied":  func(a *memArchive, _ map[string][]byte) { clear(a.objects) },
		"set back": func(a *memArchive, early map[string][]byte) { a.objects = early },
		"half of a base": func(a *memArchive, _ map[string][]byte) {
			maps.DeleteFunc(a.objects, func(name string, _ []byte) bool {
				return !strings.Contains(name, ".base.") || strings.Contains(name, "base.00000")
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newMemArchive()
				s := shipTo(t, NewMemFS(), a, func(sh *Shipping) { sh.part = 1 })
				defer s.Abandon()
				shipFor(t, s, 1)
				early := a.clone().objects
				shipFor(t, s, 4)
				put(t, s, "o", "n", "after a check")
				time.Sleep(20 * time.Second)
				a.set(func(a *memArchive) { change(a, early) })
				shipFor(t, s, 3)
				wantShipped(t, s, a)
				r, _ := restored(t, a, RestorePoint{})
				r.live("c", "o").want(t, "n", "8")
				r.Abandon()
				bases := strings.Count(a.names(), ".end")
				shipFor(t, s, 5)
				if n := strings.Count(a.names(), ".end"); n != bases {
					t.Errorf("%d bases, later %d: %s", bases, n, a.names())
				}
			})
		})
	}
}

// TestArchiveOfAnotherStoreIsNoticed replaces the archive by one of another store while a host ships to it.
func TestArchiveOfAnotherStoreIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, other := newMemArchive(), newMemArchive()
		o := shipTo(t, NewMemFS(), other)
		shipFor(t, o, 20)
		o.Abandon()
		s := shipTo(t, NewMemFS(), a)
		defer s.Abandon()
		shipFor(t, s, 2)
		a.set(func(a *memArchive) { a.objects = other.objects })
		shipFor(t, s, 3)
		if st := s.Stats().Ship; !errors.Is(st.Err, ErrForeignArchive) || st.Records == 0 {
			t.Errorf("with the archive of another store: %+v", st)
		}
	})
}

// TestArchiveOutageIsNotALoss lets the calls of an archive fail at the time of a check.
func TestArchiveOutageIsNotALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newMemArchive()
		s := shipTo(t, NewMemFS(), a)
		defer s.Abandon()
		shipFor(t, s, 3)
		a.set(func(a *memArchive) { a.refuse = errors.New("down") })
		shipFor(t, s, 5)
		if !s.ship.isAttached() {
			t.Error("an archive that is down is taken for one that has lost objects")
		}
		a.set(func(a *memArchive) { a.refuse = nil })
		time.Sleep(2 * time.Minute)
		wantShipped(t, s, a)
		if n := strings.Count(a.names(), ".end"); n != 1 {
			t.Errorf("%d bases: %s", n, a.names())
		}
	})
}

// TestFolderThatIsGoneIsNotEmpty removes the folder of an archive that is open.
func TestFolderThatIsGoneIsNotEmpty(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	a, err := OpenDirArchive(nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := os.Rename(dir, dir+"2"); err != nil {
		t.Fatal(err)
	}
	if list, err := a.List(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("List: %v, %v", list, err)
	}
}

// TestLagDoesNotFollowTheClockOfFrames has records with times in the past and in the future, as after a change of the clock.
func TestLagDoesNotFollowTheClockOfFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shipTo(t, NewMemFS(), newMemArchive())
		time.Sleep(5 * time.Second)
		s.Abandon()
		for _, off := range []time.Duration{-time.Hour, time.Hour} {
			sh := s.ship
			sh.oldest = time.Time{}
			at := sh.at
			at.Number, at.Time = at.Number+1, time.Now().Add(off).UnixNano()
			sh.recordDurable(&at, 1)
			time.Sleep(time.Second)
			if lag := sh.stats().Lag; lag != time.Second {
				t.Errorf("a clock that is set by %v: a lag of %v", off, lag)
			}
			if d := time.Since(sh.durableAt(at.Time)); d < 0 || d > time.Second {
				t.Errorf("a clock that is set by %v: the next record is %v old", off, d)
			}
		}
	})
}

// TestDamageAtTheEndOfAnArchiveIsReplacedByABase damages and cuts the newest object of an archive between two hosts.
func TestDamageAtTheEndOfAnArchiveIsReplacedByABase(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"cut":     func(b []byte) []byte { return b[:len(b)-1] },
		"empty":   func([]byte) []byte { return nil },
		"changed": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs, a := NewMemFS(), newMemArchive()
				s := shipTo(t, fs, a)
				shipFor(t, s, 3)
				s.Abandon()
				a.set(func(a *memArchive) {
					names := slices.Sorted(maps.Keys(a.objects))
					last := names[len(names)-1]
					a.objects[last] = damage(a.objects[last])
				})
				s = shipTo(t, fs, a)
				defer s.Abandon()
				shipFor(t, s, 1)
				if st := s.Stats().Ship; st.Records != 0 || st.Err != nil || st.NeedsBase {
					t.Errorf("%+v", st)
				}
				r, _ := restored(t, a, RestorePoint{})
				defer r.Abandon()
				r.live("c", "o").want(t, "n", "2")
			})
		})
	}
}

// slowArchive takes a while for each part of a base.
type slowArchive struct{ *memArchive }

func (a slowArchive) Put(ctx context.Context, name string, content []byte) error {
	if strings.Contains(name, ".base.") {
		time.Sleep(20 * time.Second)
	}
	return a.memArchive.Put(ctx, name, content)
}

// TestDamageWhileAHostShipsIsReplacedByABase damages recent objects: while the first base is put, or after it. The host ends during
// the next base, or does not end.
func TestDamageWhileAHostShipsIsReplacedByABase(t *testing.T) {
	for _, minutes := range []int{2, 10} {
		for _, ends := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				a, fs := newMemArchive(), NewMemFS()
				withoutArchive(t, fs, func(s *Store) {
					for i := range 20 {
						put(t, s, fmt.Sprint("o", i), "n", "1")
					}
				})
				part := func(sh *Shipping) { sh.part = 1 }
				s := shipTo(t, fs, slowArchive{a}, part)
				defer func() { s.Abandon() }()
				shipFor(t, s, minutes)
				bases := strings.Count(a.names(), ".end")
				a.set(func(a *memArchive) {
					for name, content := range a.objects {
						if strings.Contains(name, ".records.") {
							content[len(content)-1] ^= 1
						}
					}
				})
				shipFor(t, s, 3)
				if st := s.Stats().Ship; !st.NeedsBase || st.Records > 2 || strings.Count(a.names(), ".end") != bases {
					t.Fatalf("%d bases, damage after %d minutes: %+v, %s", bases, minutes, st, a.names())
				}
				if ends {
					s.Abandon()
					s = shipTo(t, fs, slowArchive{a}, part)
				}
				shipFor(t, s, 20)
				if st := s.Stats().Ship; st.NeedsBase || st.Records != 0 {
					t.Errorf("damage after %d minutes, the host ends: %v: %+v", minutes, ends, st)
				}
				r, _ := restored(t, a, RestorePoint{})
				r.Abandon()
			})
		}
	}
}

// TestStoreFailureIsReportedBeforeTheArchiveAnswers fails the disk while a Put does not return.
func TestStoreFailureIsReportedBeforeTheArchiveAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, h := NewMemFS(), hungArchive{newMemArchive(), make(chan struct{})}
		failed := make(chan time.Time, 1)
		s, err := Open(dir, &Options{FS: fs, Ship: &Shipping{Archive: h, Context: t.Context()}, OnFail: func(error) { failed <- time.Now() }})
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, "o", "n", "1")
		time.Sleep(2 * time.Second)
		start := time.Now()
		fs.FailSyncs(errors.New("disk failure"))
		o := s.live("c", "o")
		o.put(t, "n", "2")
		if err := o.Commit(o.Batch); err != nil {
			t.Fatal(err)
		}
		if d := (<-failed).Sub(start); d != 0 {
			t.Errorf("the failure is reported after %v", d)
		}
		close(h.hung)
		s.Abandon()
	})
}

// TestListSkipsAFileThatIsGone has a file that is listed and absent: one that another program deletes looks the same.
func TestListSkipsAFileThatIsGone(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "absent"), filepath.Join(dir, objectName)); err != nil {
		t.Fatal(err)
	}
	if list, err := ReadDirArchive(nil, dir).List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("List: %v, %v", list, err)
	}
}

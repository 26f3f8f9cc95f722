package objectstore

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// archiveEnds are functions that do not return, for a method of a brokenArchive, and the texts of their errors. A line break and a
// value that differs in each call must neither make more lines nor more log records.
var archiveEnds = map[string]struct {
	end  func()
	text string
}{
	"panic":  {func() { panic("bad\nsince " + time.Now().Format(time.RFC3339Nano)) }, "panic: bad; since 2000-01-01T"},
	"goexit": {ends["goexit"], "the function called runtime.Goexit"},
}

// brokenArchive is an archive with a method that does not return while it is broken.
type brokenArchive struct {
	*memArchive
	broken string // the method; guarded by the lock of memArchive
	end    func()
}

func (a *brokenArchive) call(method string) {
	a.mu.Lock()
	broken := a.broken
	a.mu.Unlock()
	if broken == method {
		a.end()
	}
}

func (a *brokenArchive) setBroken(method string) { a.set(func(*memArchive) { a.broken = method }) }

func (a *brokenArchive) Put(ctx context.Context, name string, content []byte) error {
	a.call("Put")
	return a.memArchive.Put(ctx, name, content)
}

func (a *brokenArchive) List(ctx context.Context) ([]ArchiveObject, error) {
	a.call("List")
	return a.memArchive.List(ctx)
}

func (a *brokenArchive) Get(ctx context.Context, name string) ([]byte, error) {
	a.call("Get")
	return a.memArchive.Get(ctx, name)
}

// wantOneLine wants a text of one line with these parts, and no other.
func wantOneLine(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q, want %q", text, part)
		}
	}
	if strings.Contains(text, "\n") || strings.Contains(text, "goroutine ") {
		t.Errorf("%q has a stack, or several lines", text)
	}
}

// wantStacks wants this number of logged stacks, of the method.
func wantStacks(t *testing.T, log *bytes.Buffer, method string, want int) {
	t.Helper()
	if n := strings.Count(log.String(), `stack="goroutine `); n != want || strings.Count(log.String(), " method="+method+" ") != want {
		t.Errorf("%d stacks in the log, want %d of the method %s:\n%s", n, want, method, log)
	}
}

// TestArchivePanicIsOneLineInShipStats ships to an archive that fails twice, each time for some minutes.
func TestArchivePanicIsOneLineInShipStats(t *testing.T) {
	for how, end := range archiveEnds {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				a := &brokenArchive{memArchive: newMemArchive(), end: end.end}
				s, err := Open(dir, &Options{FS: NewMemFS(), Ship: &Shipping{Archive: a, Context: t.Context()}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Abandon()
				for times := range 2 {
					a.setBroken("Put")
					shipFor(t, s, 3)
					err, failures := s.Stats().Ship.Err, s.Stats().Ship.Failures
					if err == nil || failures < 3 {
						t.Fatalf("%d failures, the last one: %v", failures, err)
					}
					wantOneLine(t, err.Error(), "dohost: the archive's method Put: "+end.text)
					wantStacks(t, &log, "Put", times+1)
					a.setBroken("")
					shipFor(t, s, 3)
					wantShipped(t, s, a.memArchive)
				}
			})
		})
	}
}

// TestArchivePanicIsOneLineInStandbyStatus follows an archive that fails, before the first base and after it, and promotes.
func TestArchivePanicIsOneLineInStandbyStatus(t *testing.T) {
	for how, end := range archiveEnds {
		for _, method := range []string{"List", "Get"} {
			t.Run(how+"/"+method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var log bytes.Buffer
					a := &brokenArchive{memArchive: archiveOf(t, 6), end: end.end, broken: method}
					y, err := OpenStandby(standbyDir, a, &Options{FS: NewMemFS(), MemTable: 64 << 10, Logger: slog.New(slog.NewTextHandler(&log, nil))})
					if err != nil {
						t.Fatal(err)
					}
					defer func() {
						if err := y.Close(); err != nil {
							t.Error(err)
						}
					}()
					text := "the archive's method " + method + ": " + end.text
					for times := range 2 {
						for range 5 {
							y.wantWaits(t, text)
							time.Sleep(time.Second)
						}
						wantOneLine(t, y.Status().Waiting, text, " the archive: ")
						_, err = y.Promote(t.Context())
						if !errors.Is(err, ErrStandbyLags) {
							t.Fatalf("promoted: %v", err)
						}
						wantOneLine(t, err.Error(), text)
						wantStacks(t, &log, method, times+1)
						a.setBroken("")
						y.wantWaits(t, "")
						a.setBroken(method)
						y.resetCompared() // so that the next pass reads objects
					}
				})
			})
		}
	}
}

// TestArchivePanicOfOneObjectIsLoggedOnce follows an archive with one object that cannot be read: the reads of other objects in between
// do not end the fault.
func TestArchivePanicOfOneObjectIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	faults := newArchiveFaults(slog.New(slog.NewTextHandler(&log, nil)))
	a := &partlyBroken{newMemArchive(), "x"}
	a.objects["y"] = nil
	reads := guardedArchive{a, faults}
	for range 3 {
		for _, name := range []string{"x", "y"} {
			if _, err := reads.Get(t.Context(), name); (err == nil) != (name == "y") {
				t.Errorf("reading %s: %v", name, err)
			}
		}
	}
	wantStacks(t, &log, "Get", 1)
}

// partlyBroken is an archive that panics for one object.
type partlyBroken struct {
	*memArchive
	broken string
}

func (a *partlyBroken) Get(ctx context.Context, name string) ([]byte, error) {
	if name == a.broken {
		panic("bad")
	}
	return a.memArchive.Get(ctx, name)
}

package dirlog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dohost/dohost/sharedlog"
)

// Log is a shared log in a directory. Its methods may be called from any goroutine.
type Log struct {
	dir string
	ttl time.Duration
}

// The times of a lease, as parts of it.
const (
	leaseTime = 3 * time.Second
	renewals  = 3  // in a lease's time
	polls     = 20 // of a waiting host, in a lease's time
	margin    = 6  // the lease is invalid so much of it early
)

// Open returns the log in a directory, and makes the directory, for the user alone, if it is absent. It acquires nothing.
//
// Errors: the errors of the file system.
func Open(dir string) (*Log, error) {
	for _, name := range []string{"slots", "bases", "alive", "released", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, name), privateDirs); err != nil {
			return nil, fmt.Errorf("dirlog: %w", err)
		}
	}
	if err := errors.Join(syncDir(dir), syncDir(filepath.Dir(dir))); err != nil {
		return nil, fmt.Errorf("dirlog: %w", err)
	}
	return &Log{dir: dir, ttl: leaseTime}, nil
}

// Acquire implements [sharedlog.Log]. It waits until the owner has released the log, or was silent for three seconds.
//
// Errors: an error that wraps the cause of ctx; an error for a damaged log; the errors of the file system, without ErrUnavailable.
func (l *Log) Acquire(ctx context.Context) (sharedlog.Lease, error) {
	var w watch
	for {
		n, s, err := l.last()
		if err != nil {
			return nil, err
		}
		free, err := l.free(&w, s.generation)
		if err != nil {
			return nil, err
		}
		if !free {
			if err := sleep(ctx, l.ttl/polls); err != nil {
				return nil, fmt.Errorf("dirlog: waiting for the owner of generation %d: %w", s.generation, err)
			}
			continue
		}
		begun := time.Now()
		// Hosts that acquire the log at the same moment have the same generation, and must not take a slot of another for theirs.
		mark := slot{kind: kindOwner, generation: s.generation + 1, number: s.number, payload: []byte(rand.Text())}
		switch _, err := l.fill(n+1, &mark); {
		case errors.Is(err, errFilled): // by the owner, or by another waiting host
			if err := sleep(ctx, l.ttl/polls); err != nil { // the list of slots may be old
				return nil, fmt.Errorf("dirlog: waiting for the owner of slot %d: %w", n+1, err)
			}
			continue
		case err != nil:
			return nil, fmt.Errorf("dirlog: %w", err)
		}
		return l.own(begun, n+1, &mark)
	}
}

// watch has the observations of a waiting host about an owner.
type watch struct {
	generation uint64
	alive      string
	since      time.Time // of the last change
}

// free reports whether the owner with this generation has released the log, or was silent for the time of a lease.
func (l *Log) free(w *watch, generation uint64) (bool, error) {
	if generation == 0 {
		return true, nil
	}
	switch _, err := os.Stat(l.file("released", generation)); {
	case err == nil:
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("dirlog: %w", err)
	}
	alive, err := os.ReadFile(l.file("alive", generation))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("dirlog: %w", err)
	}
	if now := time.Now(); w.generation != generation || w.alive != string(alive) {
		*w = watch{generation, string(alive), now}
	}
	return time.Since(w.since) >= l.ttl, nil
}

func (l *Log) file(folder string, generation uint64) string {
	return filepath.Join(l.dir, folder, fmt.Sprintf("%016x", generation))
}

// newer reports whether a later owner was alive.
func (l *Log) newer(generation uint64) (bool, error) {
	files, err := os.ReadDir(filepath.Join(l.dir, "alive"))
	if err != nil || len(files) == 0 {
		return false, err
	}
	newest, err := strconv.ParseUint(files[len(files)-1].Name(), 16, 64)
	return newest > generation, err
}

// clean removes files of earlier generations. A failure leaves files that do no harm.
func (l *Log) clean(generation uint64) {
	for _, folder := range []string{"alive", "released", "tmp"} {
		files, err := os.ReadDir(filepath.Join(l.dir, folder))
		if err != nil {
			continue
		}
		for _, f := range files {
			name, base := f.Name(), 16
			if folder == "tmp" {
				name, _, _ = strings.Cut(name, "-")
				base = 10
			}
			if g, err := strconv.ParseUint(name, base, 64); err == nil && g < generation {
				_ = os.Remove(filepath.Join(l.dir, folder, f.Name()))
			}
		}
	}
}

// sleep waits, at most until the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

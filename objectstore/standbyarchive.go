package objectstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dohost/dohost/internal/guard"
)

const (
	// slowRead is the time after which the status of a standby names a read that has not ended.
	slowRead = 10 * time.Second
	// abandonTime is the time after the cancellation of a read after which its goroutine is abandoned.
	abandonTime = 2 * time.Second
)

// laterError is an error after which a later pass may succeed.
type laterError struct{ error }

// Unwrap returns the cause.
func (e laterError) Unwrap() error { return e.error }

// hangingError reports a read of the archive that was cancelled, or took longer than callTime, and has not ended.
type hangingError struct {
	read  string
	since time.Time
}

// Error has no duration, so it is the same in each pass.
func (e *hangingError) Error() string {
	return e.read + " has not ended since " + e.since.UTC().Format(time.RFC3339)
}

// followedArchive is the archive of a standby: see Reads in the section Standby of the package comment. It returns a laterError,
// unless an object is damaged.
type followedArchive struct {
	archive archiveReader
	faults  *archiveFaults
	name    string // in errors

	mu          sync.Mutex    // guards the rest
	running     *hangingError // the read that runs; nil if there is none
	slowCancels map[*slowCancel]struct{}
}

// slowCancel is a context that ends when a read is slow.
type slowCancel struct{ end context.CancelCauseFunc }

func newFollowedArchive(a archiveReader, log *slog.Logger) *followedArchive {
	f := &followedArchive{archive: a, faults: newArchiveFaults(log), name: "the archive"}
	if folder, ok := a.(*DirArchive); ok {
		f.name += " " + folder.dir
	}
	return f
}

// List lists the archive.
func (a *followedArchive) List(ctx context.Context) ([]ArchiveObject, error) {
	var list []ArchiveObject // a read that was left may set it later
	err := a.read(ctx, archiveCall{"List", "", "listing " + a.name}, func(ctx context.Context) (err error) { list, err = a.archive.List(ctx); return err })
	if err != nil {
		return nil, laterError{err}
	}
	return list, nil
}

// Get reads the archive.
func (a *followedArchive) Get(ctx context.Context, name string) ([]byte, error) {
	var content []byte // a read that was left may set it later
	call := archiveCall{"Get", name, fmt.Sprintf("reading object %s of %s", name, a.name)}
	err := a.read(ctx, call, func(ctx context.Context) (err error) { content, err = a.archive.Get(ctx, name); return err })
	switch {
	case errors.Is(err, ErrDamagedArchive):
		return nil, err
	case err != nil:
		return nil, laterError{err}
	}
	return content, nil
}

// archiveCall is a call of a method of the archive for an object, which is empty for a list, and its description in errors.
type archiveCall struct{ method, object, text string }

// read calls a method of the archive on a goroutine of its own. It returns when ctx ends, also if the method does not return.
func (a *followedArchive) read(ctx context.Context, c archiveCall, call func(context.Context) error) error {
	a.mu.Lock()
	if stuck := a.running; stuck != nil {
		a.mu.Unlock()
		return stuck
	}
	mine := &hangingError{c.text, time.Now()}
	a.running = mine
	a.mu.Unlock()
	slow := time.AfterFunc(slowRead, func() { a.cancelSlow(mine) })
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var err error
	ended := guard.Start(func() {
		defer func() {
			slow.Stop()
			a.mu.Lock()
			defer a.mu.Unlock()
			a.running = nil
		}()
		err = call(ctx)
	})
	failure, returned := waitRead(ctx, ended)
	if !returned {
		return mine
	}
	if fault := a.faults.ended(c.method, c.object, failure); fault != nil {
		err = fault
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.text, err)
	}
	return nil
}

// waitRead waits for the end of a read, for abandonTime at most after the end of ctx.
func waitRead(ctx context.Context, ended <-chan *guard.Failure) (failure *guard.Failure, returned bool) {
	select {
	case failure = <-ended:
		return failure, true
	case <-ctx.Done():
	}
	timer := time.NewTimer(abandonTime)
	defer timer.Stop()
	select {
	case failure = <-ended:
		return failure, true
	case <-timer.C:
		return nil, false
	}
}

// untilSlow returns a context that ends when a read has not ended for slowRead, with a *hangingError as its cause. The caller calls end.
func (a *followedArchive) untilSlow(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	p := &slowCancel{cancel}
	a.mu.Lock()
	if a.slowCancels == nil {
		a.slowCancels = map[*slowCancel]struct{}{}
	}
	a.slowCancels[p] = struct{}{}
	a.mu.Unlock()
	if slow := a.slow(); slow != nil {
		cancel(slow)
	}
	return ctx, func() {
		cancel(nil)
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.slowCancels, p)
	}
}

// cancelSlow ends the contexts of untilSlow, if a read still runs.
func (a *followedArchive) cancelSlow(slow *hangingError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running != slow {
		return
	}
	for p := range a.slowCancels {
		p.end(slow)
	}
}

// runningRead returns a read that has not ended although the standby has abandoned it; nil if there is none.
func (a *followedArchive) runningRead() *hangingError {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running
}

// slow returns the read that has not ended for slowRead; nil if there is none.
func (a *followedArchive) slow() *hangingError {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running != nil && time.Since(a.running.since) >= slowRead {
		return a.running
	}
	return nil
}

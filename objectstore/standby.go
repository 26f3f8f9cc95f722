package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/frame"
)

// Errors of a standby, and of Open.
var (
	// ErrStandby reports a directory that follows an archive. It is no store before it is promoted; with ReadOnly it can be opened.
	ErrStandby = errkind.New(errkind.ErrConflict, "the directory is a standby that was not promoted")
	// ErrNotStandby reports a directory with a store that does not follow an archive, for instance a promoted standby.
	ErrNotStandby = errkind.New(errkind.ErrConflict, "the directory has a store that is no standby")
	// ErrStandbyLags reports that a standby was not promoted, because it may lack records of the archive.
	ErrStandbyLags = errkind.New(errkind.ErrConflict, "the standby may lack records of the archive")
	// ErrNoBase reports that a standby has no state yet.
	ErrNoBase = errkind.New(errkind.ErrNotFound, "the standby has no state yet: the archive had no complete base")
)

// Standby is a copy of a store in its own directory that follows the store's archive. It can be read, and promoted. Its methods may be
// called from any goroutine.
//
// # Invariants
//
//   - The rows are the state after one record of the archive's history. The engine batch of records also sets the row l, which names the last
//     of them, so a crash leaves both or neither, and the next OpenStandby continues after that record. The batch is synced, and a
//     [Snapshot] is between two batches.
//   - Each applied record is verified: it continues the chain after the record that the row l names. Nothing else writes to the
//     engine. So the standby never has a record that the archive did not have.
//   - A damaged or repeated record, and one of another history, end Follow with its number. The records before it are applied. A missing
//     record may still arrive, for instance in a folder that another program copies, so the standby waits and reports the number.
//   - The directory is locked by one process. Before the state of a base is complete the directory is no store, and the next OpenStandby
//     begins again. Then the file DOHOST names a standby, and Open of a host refuses the directory.
//   - Promotion is one rename: DOHOST then names a copy, as after [Restore]. The first host that opens it draws a new fork, so its
//     records never continue the chain of the archive, and an archive of the old fork refuses them. After it nothing is applied.
//
// The order of the first start, after the lock:
//
//	part 0 of the base verified ──▶ DOHOST.new names the standby ──▶ rows and row l flushed ──▶ db/STORE ──▶ DOHOST.new renamed to DOHOST
type Standby struct {
	dir  string
	from *followedArchive
	opts Options // of the store
	fs   vfs.FS

	// applying is held by a pass over the archive, by Promote and by Close: a channel, since it is held during I/O. It guards the
	// fields up to listTook.
	applying chan struct{}
	lock     io.Closer      // of the directory, while there is no store
	base     *firstBase     // that was begun; nil if there is none
	retry    time.Duration  // the least time until the next pass, after a failure of the first base
	at       frame.Position // of the last applied record
	// compared reports that the standby has compared the record at, or an earlier one of its own history, with the same record in the
	// archive, and that the archive has not lost its newest record since. A pass without an object that has the record does not set it.
	compared   bool
	identified frame.Name // of the object without the record at that was compared last; zero for none
	newest     uint64     // the newest record of the archive at the last list
	closed     bool
	marks      bool          // the batch that is being made changes marks of imports
	listTook   time.Duration // of the last list of the archive; used by Follow

	store    atomic.Pointer[Store] // nil before the first base is complete
	promoted chan struct{}         // closed by Promote

	mu     sync.Mutex // guards the rest; taken before the lock of from
	status StandbyStatus
	lag    lagClock
	ending bool // Close was called
	// cancel ends the context of the holder of applying, with a cause; nil if there is no holder. reading reports that the holder reads the
	// archive.
	cancel  context.CancelCauseFunc
	reading bool
	asIs    int // calls of PromoteAsIs: while there are some, each pass over the archive ends at its beginning
}

// StandbyStatus describes a standby after its last pass over the archive.
type StandbyStatus struct {
	Identity Identity  // of the store that it follows; zero before the first base
	Record   uint64    // the last applied record; zero before the first base
	Time     time.Time // when that record was made; zero before the first base
	Archived uint64    // the newest record in the archive
	Lag      uint64    // records in the archive that are not applied
	// LagTime is the time since the standby found the oldest of them, or a newer record if the archive lacks the oldest; zero if there is
	// none. After many passes without progress it may be too long.
	LagTime time.Duration
	// Waiting is why the standby cannot continue before the archive changes; empty if it has applied all records.
	Waiting  string
	Promoted bool
}

// OpenStandby opens the standby in dir, which must be a standby, absent or empty. The caller runs Follow, and closes the standby. OpenStandby
// uses only FS, Logger, Cache, MemTable, ReserveBytes and OnDamage of o. Errors: ErrLocked, ErrNotStandby, ErrForeign, ErrAbsent, ErrFormat, the
// errors of the disk.
func OpenStandby(dir string, from Archive, o *Options) (*Standby, error) {
	var d Options
	if o != nil {
		d = Options{FS: o.FS, Logger: o.Logger, Cache: o.Cache, MemTable: o.MemTable, ReserveBytes: o.ReserveBytes, OnDamage: o.OnDamage}
	}
	opts := d.withDefaults()
	y := &Standby{
		dir: dir, from: newFollowedArchive(from, opts.Logger), opts: opts, fs: opts.vfs(), applying: make(chan struct{}, 1), promoted: make(chan struct{}),
	}
	names, err := y.fs.List(dir)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("dohost: standby: %w", err)
	case slices.Contains(names, formatName):
		err = y.open()
	default:
		err = y.claim()
	}
	if err != nil {
		return nil, fmt.Errorf("dohost: standby: %w", err)
	}
	return y, nil
}

// open opens the store of a standby with a state.
func (y *Standby) open() error {
	opts := y.opts
	opts.ReadOnly, opts.standby = true, true
	s, err := Open(y.dir, &opts)
	if err != nil {
		return err
	}
	row, ok, err := s.applied()
	if err == nil && (!ok || row.at.Number == 0) {
		err = fmt.Errorf("%w: the database does not name its last record", ErrForeign)
	}
	if id := (Identity{row.at.Store.String(), row.at.Fork}); err == nil && id != s.Identity() {
		err = fmt.Errorf("%w: the last record is of %v, the store is %v", ErrForeign, id, s.Identity())
	}
	if err != nil {
		return errors.Join(err, s.Close())
	}
	y.applied(&row.at)
	y.store.Store(s)
	return nil
}

// Store returns the store, which is read-only, and may be read while records are applied. Before the first base is complete it is an
// error of kind ErrNotFound.
func (y *Standby) Store() (*Store, error) {
	if s := y.store.Load(); s != nil {
		return s, nil
	}
	return nil, ErrNoBase
}

// Status describes the standby. No I/O.
func (y *Standby) Status() StandbyStatus {
	y.mu.Lock()
	defer y.mu.Unlock()
	st := y.status
	st.LagTime = y.lag.lag(time.Now())
	if slow := y.from.slow(); slow != nil && !st.Promoted && !strings.Contains(st.Waiting, slow.Error()) {
		st.Waiting = strings.TrimPrefix(st.Waiting+"; "+slow.Error(), "; ")
	}
	return st
}

// applied sets the last applied record.
func (y *Standby) applied(at *frame.Position) {
	y.at = *at
	y.mu.Lock()
	defer y.mu.Unlock()
	st := &y.status
	st.Identity, st.Record, st.Time = Identity{at.Store.String(), at.Fork}, at.Number, time.Unix(0, at.Time).UTC()
	st.Lag = max(st.Archived, st.Record) - st.Record
	y.lag.applied(at.Number)
}

// listed sets the newest record of the archive.
func (y *Standby) listed(newest uint64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	st := &y.status
	st.Archived, st.Lag = newest, max(newest, st.Record)-st.Record
	y.lag.listed(newest, st.Record, time.Now())
}

// wait sets why the standby cannot continue, and logs it once. An empty reason ends the wait.
func (y *Standby) wait(why string) {
	y.mu.Lock()
	changed := y.status.Waiting != why
	y.status.Waiting = why
	record := y.status.Record
	y.mu.Unlock()
	switch {
	case !changed:
	case why == "":
		y.opts.Logger.Info("the standby continues", "record", record)
	default:
		y.opts.Logger.Warn("the standby waits", "record", record, "why", why)
	}
}

// acquire waits until there is no other holder of applying. It returns the context of the holder. If reading is set, the holder reads the
// archive, and PromoteAsIs ends the context.
func (y *Standby) acquire(ctx context.Context, reading bool) (context.Context, error) {
	if err := ctx.Err(); err != nil { // select would choose at random
		return nil, err
	}
	select {
	case y.applying <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.closed || y.ending {
		<-y.applying
		return nil, ErrClosed
	}
	ctx, y.cancel = context.WithCancelCause(ctx)
	if y.reading = reading; reading && y.asIs > 0 {
		y.cancel(errInterrupted)
	}
	return ctx, nil
}

func (y *Standby) release() {
	y.mu.Lock()
	y.cancel(nil)
	y.cancel = nil
	y.mu.Unlock()
	<-y.applying
}

// Promote applies the records that the archive has, and makes the directory a store. The first host that opens that store begins a new
// history. Follow then returns nil, and the standby can be read until Close. If the archive lacks a record or the last applied one, has no
// complete base yet, or cannot be read, Promote returns ErrStandbyLags with the reason, and the standby continues to follow. Other errors: the
// errors of Follow, which then returns the same error; ErrClosed; the errors of ctx. Promoting a promoted standby has no effect.
// Promote waits until the current pass of Follow ends. If a read of the archive has not ended for ten seconds, or if PromoteAsIs is called
// while Promote reads the archive, it returns ErrStandbyLags, too.
//
// Promote does not stop a host that still ships to the archive. The two stores then have different histories.
func (y *Standby) Promote(ctx context.Context) (StandbyStatus, error) {
	if y.Status().Promoted {
		return y.Status(), nil
	}
	ctx, end := y.from.untilSlow(ctx)
	defer end()
	return y.promote(ctx, true, func(ctx context.Context) error {
		y.resetCompared()
		if err := y.catchUp(ctx); err != nil {
			return err
		}
		if st := y.Status(); st.Waiting != "" || st.Lag > 0 {
			return fmt.Errorf("%w: %s", ErrStandbyLags, st.Waiting)
		}
		return nil
	})
}

// PromoteAsIs promotes the standby without reading the archive, and interrupts a read of Follow or of Promote. Records that only the archive has are
// lost for the promoted store. A standby without a state returns ErrNoBase.
func (y *Standby) PromoteAsIs(ctx context.Context) (StandbyStatus, error) {
	y.mu.Lock()
	if y.asIs++; y.cancel != nil && y.reading {
		y.cancel(errInterrupted)
	}
	y.mu.Unlock()
	defer func() {
		y.mu.Lock()
		y.asIs--
		y.mu.Unlock()
	}()
	return y.promote(ctx, false, func(context.Context) error { return nil })
}

// promote makes the directory a store after prepare. If reading is set, prepare reads the archive.
func (y *Standby) promote(ctx context.Context, reading bool, prepare func(context.Context) error) (StandbyStatus, error) {
	held, err := y.acquire(ctx, reading)
	if err != nil {
		return StandbyStatus{}, refusedPromotion(ctx, err)
	}
	defer y.release()
	ctx = held
	if y.Status().Promoted {
		return y.Status(), nil
	}
	err = prepare(ctx)
	s, stateErr := y.Store()
	if err == nil {
		err = stateErr
	}
	if err == nil {
		err = errors.Join(s.refusal(), s.background.failure())
	}
	if err == nil {
		err = putIdentity(y.fs, y.dir, formatName, formatTemp, identityFile{Identity: s.Identity(), copied: true})
	}
	if err != nil {
		return StandbyStatus{}, refusedPromotion(ctx, err)
	}
	y.mu.Lock()
	y.status.Promoted = true
	y.mu.Unlock()
	close(y.promoted)
	y.opts.Logger.Info("the standby is promoted", "record", y.at.Number)
	return y.Status(), nil
}

// refusedPromotion returns the error of a promotion. A read that hangs, and a PromoteAsIs, end ctx with a cause.
func refusedPromotion(ctx context.Context, err error) error {
	if hangs, ok := errors.AsType[*hangingError](context.Cause(ctx)); ok {
		err = fmt.Errorf("%w: %w", ErrStandbyLags, hangs)
	} else if errors.Is(err, errInterrupted) {
		err = fmt.Errorf("%w: %w", ErrStandbyLags, err)
	}
	return fmt.Errorf("dohost: promote: %w", err)
}

// Close interrupts a pass over the archive and a promotion, waits for their ends, and closes the store. It does not wait for a read of
// the archive that hangs. Closing twice is allowed.
func (y *Standby) Close() error {
	y.mu.Lock()
	y.ending = true
	if y.cancel != nil {
		y.cancel(ErrClosed)
	}
	y.mu.Unlock()
	y.applying <- struct{}{}
	defer func() { <-y.applying }()
	if y.closed {
		return nil
	}
	y.closed = true
	err := y.dropBase()
	if s := y.store.Load(); s != nil {
		err = errors.Join(err, s.Close())
	}
	if y.lock != nil {
		err = errors.Join(err, y.lock.Close())
	}
	return err
}

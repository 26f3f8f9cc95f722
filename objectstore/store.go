package objectstore

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dohost/dohost/internal/guard"
)

// Store has the objects of one host, in one directory. All methods may be called
// from any goroutine.
type Store struct {
	// Fixed by Open.
	opts       Options
	dir        string
	fs         vfs.FS
	lock       io.Closer
	db         engineDB // used inside engineUse, and by the committer
	log        recordLog
	ship       *shipper // nil if there is no archive
	opened     time.Time
	identity   Identity
	generation uint64
	clean      bool
	done       chan struct{} // closed when the committer has closed the database
	closeErr   error         // the error of closing; read after done

	// recordLock is held while a record is in flight, or must not be: a channel, since it is held during I/O.
	recordLock chan struct{}
	// scratch is held by the user of the directory scratchName: a channel, since it is held during I/O.
	scratch chan struct{}

	incarnations atomic.Uint64
	abandoned    atomic.Bool // no output leaves any more
	alarms       atomic.Uint64
	ended        atomic.Pointer[ending] // nil while open
	// recordSince is when the record in flight was taken, or when the flush after it began, in nanoseconds after opened,
	// plus one; zero if there is none. Only the committer writes it.
	recordSince atomic.Int64
	counts      struct{ records, batches, bytes atomic.Int64 }

	queue   queue
	budget  budget
	space   spaceGuard
	damages damages

	background background
	engine     engineUse
	cursors    openCursors
	snapshots  openSnapshots
	importing  importSet
}

// Open opens the store in dir, and makes it if dir is empty or absent. If dir is a
// backup that no host has opened, Open draws a new fork for it and makes that durable
// before anything else; with ReadOnly it does not. Errors: ErrMisuse for an incomplete Options.Shared,
// or one with Ship or ReadOnly; ErrLocked, ErrForeign, ErrFormat, ErrAbsent; ErrStandby; ErrForeignArchive;
// ErrSharedHistory, ErrLogDamaged, ErrFenced; ErrDamaged; or the errors of the disk
// and of the lease. ErrForeign and ErrAbsent leave the files as they were, with one
// exception: if nothing but the host record names another store, the engine was open, and
// may have moved the rows of its log to tables.
func Open(dir string, o *Options) (*Store, error) {
	opts := o.withDefaults()
	if err := opts.check(); err != nil {
		return nil, err
	}
	s, c := newStore(dir, opts)
	if err := s.open(c); err != nil {
		s.log.Stop(err)
		return nil, err
	}
	if s.ship != nil {
		go s.ship.run()
	}
	if l, ok := s.log.(*leaseLog); ok {
		go l.bases.run()
	}
	c.lost = s.log.Lost()
	go c.run()
	return s, nil
}

func newStore(dir string, opts Options) (*Store, *committer) {
	s := &Store{
		opts:       opts,
		dir:        dir,
		fs:         opts.vfs(),
		opened:     time.Now(),
		done:       make(chan struct{}),
		recordLock: make(chan struct{}, 1),
		scratch:    make(chan struct{}, 1),
		queue:      queue{wake: make(chan struct{}, 1)},
		engine:     engineUse{drained: make(chan struct{}, 1)},
		budget:     budget{limit: opts.MaxHostBytes, object: opts.MaxObjectBytes},
	}
	s.background.init(opts.Logger)
	s.damages = damages{log: opts.Logger, on: opts.OnDamage}
	s.log = localLog{s}
	if opts.Shared != nil {
		s.log = newLeaseLog(s, opts.Shared)
	}
	return s, &committer{s: s}
}

// open opens the store, and begins its history, or continues it.
func (s *Store) open(c *committer) error {
	claimed, err := claimDir(s.fs, s.dir, &s.opts)
	if err != nil {
		return err
	}
	s.lock = claimed.lock
	if l, ok := s.log.(*leaseLog); ok {
		go l.watch()
		if err := l.identify(&claimed); err != nil {
			return errors.Join(s.openError(err), s.lock.Close())
		}
	}
	s.db, err = s.openEngine(claimed.isNew)
	switch {
	case errors.Is(err, pebble.ErrDBDoesNotExist):
		err = fmt.Errorf("%w: %s", ErrAbsent, s.dir)
	case errors.Is(err, errInUse):
		err = lockError(s.dir, err)
	}
	if err != nil {
		return errors.Join(s.openError(err), s.lock.Close())
	}
	s.space = spaceGuard{fs: s.fs, dir: s.dir, flush: s.background.flushError, reserve: s.opts.ReserveBytes, since: s.opened, on: s.opts.OnSpace, log: s.opts.Logger}
	s.space.measure()
	if s.opts.Ship != nil && !s.opts.ReadOnly {
		s.ship = newShipper(s, s.opts.Ship)
	}
	if err = c.begin(&claimed); err == nil && !s.opts.ReadOnly {
		err = claimed.finish(s.fs, s.dir, s.identity)
	}
	if err != nil {
		if s.ship != nil {
			s.ship.end()
		}
		return errors.Join(s.openError(err), s.closeDB())
	}
	return nil
}

// openError adds the directory to an error that may not name it.
func (s *Store) openError(err error) error { return fmt.Errorf("dohost: opening %s: %w", s.dir, err) }

// begin reads the record of the last host and starts a new host generation.
func (c *committer) begin(claimed *claim) error {
	s := c.s
	if err := c.loadChain(claimed); err != nil {
		return err
	}
	v, ok, err := s.appendGet(nil, s.db, []byte{keyHost})
	if err != nil && !s.toleratesDamage(err) {
		return err
	}
	last := hostRecord{identity: claimed.Identity, clean: true}
	switch {
	case err != nil: // a damaged record of a store that is only read
		err = nil
	case ok:
		last, err = decodeHostRecord(v)
	case !claimed.isNew:
		err = fmt.Errorf("%w: the database has no host record", ErrForeign)
	}
	if err != nil {
		return err
	}
	if c.host, err = claimed.next(last, s.opts.Entropy); err != nil {
		return err
	}
	if err := c.shareHost(last, claimed.copied); err != nil {
		return err
	}
	s.clean, s.generation, s.identity = last.clean, c.host.generation, c.host.identity
	if s.opts.ReadOnly {
		s.identity = last.identity
	}
	if err := s.importing.load(s); err != nil && !s.toleratesDamage(err) {
		return err
	}
	if s.opts.ReadOnly {
		return nil
	}
	c.copied = claimed.copied
	if s.ship != nil {
		if err := c.loadFrames(last); err != nil {
			return err
		}
		if err := s.ship.open(); err != nil {
			return err
		}
	}
	return c.writeHost(false)
}

// loadChain applies the records of the shared log that the directory lacks. Without a lease it refuses a directory that has a part of a
// base.
func (c *committer) loadChain(claimed *claim) (err error) {
	if l, ok := c.s.log.(*leaseLog); ok {
		if c.chain, err = l.replay(claimed.Identity); err == nil {
			c.tail = c.chain.at.Number
		}
		return err
	}
	if !c.s.opts.ReadOnly { // a lease is needed, and so the host record will refuse the directory
		return nil
	}
	row, ok, err := c.s.applied()
	if err == nil && ok && row.at.Number == 0 {
		err = fmt.Errorf("%w: the base of its shared log was not restored completely", ErrAbsent)
	}
	if c.s.toleratesDamage(err) {
		return nil
	}
	return err
}

// shareHost completes the host record of a host with a lease. Without one it refuses a directory with the records of a shared log:
// other hosts may have continued that history.
func (c *committer) shareHost(last hostRecord, copied bool) error {
	l, ok := c.s.log.(*leaseLog)
	if !ok {
		if last.shared && !copied && !c.s.opts.ReadOnly {
			return fmt.Errorf("%w: the history of this directory is in a shared log, so it needs a lease", ErrSharedHistory)
		}
		return nil
	}
	if g := l.lease.Generation(); g < c.host.generation {
		return fmt.Errorf("%w: the lease has generation %d, and the last host of the log had %d", ErrLogDamaged, g, last.generation)
	}
	c.host.generation, c.host.shared = l.lease.Generation(), true
	return nil
}

// toleratesDamage reports whether a store may be opened without a record that could not be
// read with this error. A store that is only checked and exported may lack damaged ones.
func (s *Store) toleratesDamage(err error) bool {
	return s.opts.ReadOnly && !s.opts.standby && errors.Is(err, ErrDamaged)
}

// Identity names the store and its history. It is the same for every Open, until a
// backup is opened.
func (s *Store) Identity() Identity { return s.identity }

// Generation returns the host generation of this Open: the previous generation plus one, or the lease's generation.
func (s *Store) Generation() uint64 { return s.generation }

// Clean reports whether the last host closed the store. It is true of a new store.
func (s *Store) Clean() bool { return s.clean }

// NewEpoch numbers a new incarnation.
func (s *Store) NewEpoch() Epoch { return s.Epoch(s.incarnations.Add(1)) }

// Epoch returns the epoch of the incarnation that NewEpoch gave this number.
func (s *Store) Epoch(number uint64) Epoch {
	return Epoch{Fork: s.identity.Fork, Host: s.generation, Incarnation: number}
}

// NewAlarmGeneration returns a number that is larger than all numbers that it has returned in this and in earlier hosts on the store: the host generation in the upper 24
// bits, a counter in the lower 40.
func (s *Store) NewAlarmGeneration() uint64 { return s.generation<<40 | s.alarms.Add(1) }

// Stalled returns for how long the record in flight, or the start of a flush after it, has been waiting for the disk or the log; zero
// if there is none.
func (s *Store) Stalled() time.Duration {
	since := s.recordSince.Load()
	if since == 0 {
		return 0
	}
	return max(0, time.Since(s.opened)-time.Duration(since-1))
}

// hook calls Options.Hook on the committer's goroutine: a goroutine for each stage would delay every record.
func (s *Store) hook(stage Stage, objects iter.Seq[ID]) {
	if s.opts.Hook == nil {
		return
	}
	if f := guard.Call(func() { s.opts.Hook(stage, objects) }); f != nil {
		s.opts.Logger.Error("Hook failed", "cause", f, "stack", string(f.Stack))
	}
}

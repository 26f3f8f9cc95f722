package objectstore

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// The engine repeats a failed flush or compaction immediately and without end. So the
// store pauses between the attempts: this long after the first failure, then twice as
// long each time, up to a maximum.
const (
	retryPause      = 100 * time.Millisecond
	maxFlushPause   = time.Second
	maxCompactPause = time.Minute
)

// background follows the engine's work in the background: flushes, compactions, and the collection of statistics of
// tables. The engine reports failures with a lock of its own held, so a report only records them. The goroutine that
// does the work pauses later, where it holds no lock: a flush when it makes its file ([engineFS.Create]), a
// compaction when it returns its permission ([compactionGrant.Done]).
//
// A flush that fails while the store is opened would keep the engine in Open for ever. Then sealed is set: from then
// on nothing reaches the disk, as after a crash, and the engine returns from Open as if the flush had succeeded.
//
// A later failure of the log sets sealed, too, with logErr as the cause: the manifest, the logs and the names of the
// files stay as a crash at this moment would leave them. The engine does not see the error, so the committer checks
// failure after each of its calls of the engine that write the log, and then fails the store. Such a call may wait for
// a flush: a large batch is written to the log before the engine makes room for it in memory. So flushes and
// compactions must still succeed. They write their tables, because the engine may read them, and ignore errors of
// these. The next Open deletes the tables, because no manifest names them.
type background struct {
	log    *slog.Logger
	done   chan struct{} // closed when the store closes: nothing pauses any more
	sealed atomic.Bool

	mu             sync.Mutex // taken with locks of the engine held
	opening        bool
	logErr         error // the first failure of the log after Open; sealed is set after it
	flushEnd       error // of the last flush: failed compares its error with it
	compactionEnd  error // of the last compaction, as flushEnd
	flush, compact attempts
	statistics     attempts
	unknown        int // failures of other work
}

// attempts counts the attempts of one kind of work since its last success.
type attempts struct {
	err    error // of the last one; nil if that succeeded
	failed int   // number of consecutive failures
	pause  time.Duration
}

func (b *background) init(log *slog.Logger) {
	b.log, b.done, b.opening = log, make(chan struct{}), true
}

// flushed is called at the end of each flush.
func (b *background) flushed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sealed.Load() && b.logErr == nil {
		return // the success of a flush that wrote nothing
	}
	b.flushEnd = err
	if err == nil || err.Error() == emptyTable {
		b.succeededLocked(&b.flush, "flush")
	}
}

// emptyTable is the text of an error that is not a failure: a flush had nothing to write.
const emptyTable = "pebble: empty table"

// compacted is called at the end of each compaction.
func (b *background) compacted(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.compactionEnd = err
	if err == nil {
		b.succeededLocked(&b.compact, "compaction")
	}
}

func (b *background) succeededLocked(a *attempts, kind string) {
	if a.err != nil {
		b.log.Info(kind+" succeeded again", "attempts", a.failed)
	}
	*a = attempts{}
}

// failed is called when work in the background has failed. For a flush or a compaction it is called after flushed or
// compacted, with a lock of the engine held, and for statistics without a lock. For other work, or if another compaction has
// ended in between, a lock may be held.
func (b *background) failed(err error) {
	b.mu.Lock()
	if b.sealed.Load() && b.logErr == nil {
		b.mu.Unlock()
		return
	}
	switch {
	case collectsStatistics():
		b.failedLocked(&b.statistics, "collecting statistics of tables", err, maxCompactPause)
		b.mu.Unlock()
		b.pause(&b.statistics)
		return
	case b.flushEnd != nil && errors.Is(err, b.flushEnd):
		b.failedLocked(&b.flush, "flush", err, maxFlushPause)
		if b.opening {
			b.sealed.Store(true)
		}
	case b.compactionEnd != nil && errors.Is(err, b.compactionEnd):
		b.failedLocked(&b.compact, "compaction", err, maxCompactPause)
	default:
		if b.unknown++; b.unknown&(b.unknown-1) == 0 {
			b.log.Error("background work of the engine failed", "err", err, "times", b.unknown)
		}
	}
	b.mu.Unlock()
}

// collectsStatistics reports whether its caller runs on the goroutine of the engine that
// collects statistics of tables. The engine does not say which work has failed, and a pause
// in another one could keep a lock of the engine.
func collectsStatistics() bool {
	var callers [32]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers[:])])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "pebble/v2.(*DB).collectTableStats") {
			return true
		}
		if !more {
			return false
		}
	}
}

// failedLocked records a failure, and logs the first of consecutive failures. Damage is logged where it is found.
func (b *background) failedLocked(a *attempts, kind string, err error, limit time.Duration) {
	if a.err == nil && !pebble.IsCorruptionError(err) {
		b.log.Error(kind+" failed, and will be retried until it succeeds", "err", err)
	}
	a.pause = min(retryPause<<min(a.failed, 20), limit)
	a.err = err
	a.failed++
}

// check handles the error of an operation on a file, and returns the error for the engine. An error of the log after Open
// seals the file system.
func (b *background) check(k fileKind, err error) error {
	if err == nil || k == otherFile {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.opening:
		return err
	case b.logErr != nil:
		return nil
	case k == tableFile:
		return err
	}
	b.logErr = fmt.Errorf("writing the log: %w", err)
	b.sealed.Store(true)
	return nil
}

// discards reports whether operations that change a file of this kind do nothing.
func (b *background) discards(k fileKind) bool {
	return b.sealed.Load() && (k != tableFile || b.failure() == nil)
}

// failure returns why the log has failed; nil if it has not.
func (b *background) failure() error {
	if !b.sealed.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logErr
}

// pause waits before the next attempt, if the last one failed.
func (b *background) pause(a *attempts) {
	b.mu.Lock()
	d := a.pause
	a.pause = 0 // one pause for each failure
	b.mu.Unlock()
	if d == 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.done:
	}
}

// flushError is the error of the last flush; nil if it succeeded.
func (b *background) flushError() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flush.err
}

// opened is called when the engine has returned from Open. It returns the error of a
// flush that failed until then: the disk does not let the store begin.
func (b *background) opened() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opening = false
	if b.sealed.Load() {
		return b.flush.err
	}
	return nil
}

// reopen makes failures of flushes count as failures during Open, until opened is called again: the first one seals the file
// system. It is for a database that is discarded if a flush fails.
func (b *background) reopen() {
	b.mu.Lock()
	b.opening = true
	b.mu.Unlock()
}

// close ends all pauses. It is called once.
func (b *background) close() { close(b.done) }

// engineListener returns the engine's event callbacks.
func engineListener(s *Store) *pebble.EventListener {
	return &pebble.EventListener{
		WALCreated:      func(i pebble.WALCreateInfo) { s.logFileCreated(i.Err) },
		DataCorruption:  func(i pebble.DataCorruptionInfo) { s.damaged(damageOf(i)) },
		FlushEnd:        func(i pebble.FlushInfo) { s.background.flushed(i.Err) },
		CompactionEnd:   func(i pebble.CompactionInfo) { s.background.compacted(i.Err) },
		BackgroundError: s.background.failed,
	}
}

// damaged is called for each read and each compaction that meets a damaged block. Files
// that are missing or incomplete because of sealed are no damage.
func (s *Store) damaged(d Damage) {
	if !s.background.sealed.Load() {
		s.damages.add(d)
	}
}

// compactionScheduler grants the engine one compaction at a time. The engine's usual
// scheduler looks ten times a second whether it may grant more, which is for hosts
// that allow several.
type compactionScheduler struct {
	pebble.CompactionScheduler
	b *background
}

func newCompactionScheduler(b *background) *compactionScheduler {
	return &compactionScheduler{pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest(), b}
}

// Register passes grants to the database through compactionGrants.
func (c *compactionScheduler) Register(goroutines int, db pebble.DBForCompaction) {
	c.CompactionScheduler.Register(goroutines, grantedDB{db, c.b})
}

// TrySchedule grants a compaction that the database asks for.
func (c *compactionScheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	ok, grant := c.CompactionScheduler.TrySchedule()
	return ok, compactionGrant{grant, c.b}
}

type grantedDB struct {
	pebble.DBForCompaction
	b *background
}

// Schedule grants a compaction that the database has waited for.
func (d grantedDB) Schedule(grant pebble.CompactionGrantHandle) bool {
	return d.DBForCompaction.Schedule(compactionGrant{grant, d.b})
}

// compactionGrant is the permission to run one compaction.
type compactionGrant struct {
	pebble.CompactionGrantHandle
	b *background
}

// Done returns the permission, after a pause if the compaction failed. The engine calls it without locks.
func (g compactionGrant) Done() {
	g.b.pause(&g.b.compact)
	g.CompactionGrantHandle.Done()
}

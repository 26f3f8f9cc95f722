package objectstore

import (
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dohost/dohost/internal/engine"
)

// restoreCompactFrom makes the engine compact the tables of a restore when four sublevels of L0 overlap: the engine counts two for each. A
// restore reads nothing before its end, and each compaction writes the rows again. The engine of the first host compacts the rest.
const restoreCompactFrom = 8

// engineOptions configures Pebble.
func engineOptions(o *Options, fs vfs.FS) (p *pebble.Options, release func()) {
	p, release = engine.Options(fs, o.Cache, o.MemTable)
	p.ReadOnly = o.ReadOnly && !o.standby
	if o.unlogged {
		p.DisableWAL, p.L0CompactionThreshold = true, restoreCompactFrom
	}
	p.Logger = &engineLogger{log: o.Logger}
	return p, release
}

// openEngine opens the engine, and makes its database if isNew. If a flush has failed, it returns the error of the
// flush: see background.
func (s *Store) openEngine(isNew bool) (engineDB, error) {
	at := s.fs.PathJoin(s.dir, dbName)
	p, release := engineOptions(&s.opts, &engineFS{s.fs, at, &s.background})
	defer release()
	p.ErrorIfNotExists = !isNew
	p.EventListener = engineListener(s)
	p.Experimental.CompactionScheduler = newCompactionScheduler(&s.background)
	db, err := openPebble(at, p)
	failed := s.background.opened()
	if failed == nil && err == nil {
		return db, nil
	}
	s.background.close()
	if failed == nil {
		return nil, err
	}
	if err == nil {
		_ = db.Close() // it wrote nothing
	}
	return nil, fmt.Errorf("flushing the log: %w", failed)
}

// openPebble opens Pebble. On a disk that fails in some of its steps Pebble cleans
// up and panics.
func openPebble(path string, o *pebble.Options) (db *pebble.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("pebble: %v", p)
			if cause, ok := p.(error); ok {
				err = fmt.Errorf("pebble: %w", cause)
			}
		}
	}()
	return pebble.Open(path, o)
}

// engineLogger passes Pebble's messages on.
type engineLogger struct{ log *slog.Logger }

// Infof logs at debug level: flushes and compactions are Pebble's own affair.
func (l *engineLogger) Infof(format string, args ...any) {
	l.log.Debug(fmt.Sprintf(format, args...))
}

// Errorf logs an error.
func (l *engineLogger) Errorf(format string, args ...any) {
	l.log.Error(fmt.Sprintf(format, args...))
}

// Fatalf ends the process: Pebble would continue as if it had ended, with its locks held and data that is not on the
// disk.
func (l *engineLogger) Fatalf(format string, args ...any) {
	exitProcess(l.log, fmt.Sprintf(format, args...))
}

// exitProcess ends the process. It writes the reason to the standard error, too: a program without a Logger must not end
// silently.
func exitProcess(log *slog.Logger, why string) {
	log.Error("ending the process: " + why)
	fmt.Fprintln(os.Stderr, "dohost: ending the process:", why)
	os.Exit(1)
}

// logFileCreated ends the process when Pebble could not sync the directory of its next log file. Pebble is about to
// panic while a mutex of its own is in a state that turns the panic into a fatal error without the name of the disk.
func (s *Store) logFileCreated(err error) {
	if err != nil && s.db != nil { // while it is nil, Open returns the error
		exitProcess(s.opts.Logger, fmt.Sprintf("cannot create a log file in %s: %v", s.dir, err))
	}
}

// exitOnPanic is deferred around calls of the engine that write. A panic may have left a mutex of the engine locked. Then the store
// could neither fail nor close, and the process would remain without serving calls.
func (s *Store) exitOnPanic() {
	if p := recover(); p != nil {
		exitProcess(s.opts.Logger, fmt.Sprintf("the store in %s cannot continue: %v\n%s", s.dir, p, debug.Stack()))
	}
}

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

// engineOptions configures Pebble.
func engineOptions(o *Options, fs vfs.FS) (p *pebble.Options, release func()) {
	p, release = engine.Options(fs, o.Cache, o.MemTable)
	p.ReadOnly = o.ReadOnly
	p.Logger = &engineLogger{log: o.Logger}
	return p, release
}

// openEngine opens the engine, and makes its database if isNew. Its error is that of a
// flush, if one failed: see background.
func (s *Store) openEngine(isNew bool) (*pebble.DB, error) {
	p, release := engineOptions(&s.opts, &engineFS{s.fs, &s.background})
	defer release()
	p.ErrorIfNotExists = !isNew
	p.EventListener = s.listener()
	p.Experimental.CompactionScheduler = newCompactionScheduler(&s.background)
	db, err := openPebble(s.fs.PathJoin(s.dir, dbName), p)
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

// Fatalf ends the process: Pebble goes on as if it had, with its locks held and
// data that is not on the disk.
func (l *engineLogger) Fatalf(format string, args ...any) {
	die(l.log, fmt.Sprintf(format, args...))
}

// die ends the process. Its words go to the standard error, too: a program that
// gave no Logger must not end in silence.
func die(log *slog.Logger, why string) {
	log.Error("the process ends: " + why)
	fmt.Fprintln(os.Stderr, "dohost: the process ends:", why)
	os.Exit(1)
}

// logFileCreated ends the process when Pebble could not begin its next log file.
// Pebble is about to panic, with a mutex of its own in a state in which that ends
// the process by a fatal error that names no disk.
func (s *Store) logFileCreated(i pebble.WALCreateInfo) {
	if i.Err != nil && s.db != nil { // while it is nil, Open returns the error
		die(s.opts.Logger, fmt.Sprintf("no log file can be made in %s: %v", s.dir, i.Err))
	}
}

// dieOfPanic is deferred around what makes Pebble change its log file, and ends
// the process if it panics because the last one cannot be closed. The panic may let
// go of a mutex that another goroutine of Pebble's holds, which then dies of a
// fatal error. When the two are reported at once, Go's runtime can deadlock, and
// the process stays and serves nobody. So the panic is not left to unwind.
func (s *Store) dieOfPanic() {
	if p := recover(); p != nil {
		die(s.opts.Logger, fmt.Sprintf("the store in %s cannot go on: %v\n%s", s.dir, p, debug.Stack()))
	}
}

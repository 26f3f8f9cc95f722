package objectstore

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// engineFormat is pinned: a newer one is a decision, since older builds cannot
// read it. Formats before columnar blocks also keep channels in package-level
// pools, which ends a second synctest bubble.
const engineFormat = pebble.FormatValueSeparation

const bloomBitsPerKey = 10

// engineOptions is the one place that configures Pebble.
func engineOptions(o *Options, fs vfs.FS) (p *pebble.Options, release func()) {
	cache := pebble.NewCache(o.Cache)
	p = &pebble.Options{
		FS:                          fs,
		Cache:                       cache,
		FormatMajorVersion:          engineFormat,
		MemTableSize:                uint64(o.MemTable),
		MemTableStopWritesThreshold: 4,
		ReadOnly:                    o.ReadOnly,
		Logger:                      &engineLogger{log: o.Logger},
	}
	for i := range p.Levels {
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBitsPerKey)
	}
	if o.FS != nil && o.FS.mem != nil {
		// The usual scheduler ticks, and time in a synctest bubble would pass in its
		// steps.
		p.Experimental.CompactionScheduler = pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()
	}
	return p, cache.Unref
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
	l.log.Error("fatal: " + fmt.Sprintf(format, args...))
	os.Exit(1)
}

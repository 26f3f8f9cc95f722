package objectstore

import "github.com/cockroachdb/pebble/v2"

// listener returns what the engine calls at its events.
func (s *Store) listener() *pebble.EventListener {
	return &pebble.EventListener{
		WALCreated:      s.logFileCreated,
		DataCorruption:  s.damages.met,
		BackgroundError: s.backgroundError,
	}
}

// backgroundError is called when a flush, a compaction or the collection of statistics
// of tables has failed. Damage is reported by damages.
func (s *Store) backgroundError(err error) {
	if !pebble.IsCorruptionError(err) {
		s.opts.Logger.Error("background work of the engine failed", "err", err)
	}
}

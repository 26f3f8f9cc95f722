// Package engine configures Pebble, for the store and for benchmarks of raw Pebble.
package engine

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Format is pinned: a newer one is a decision, since older builds cannot read it.
// Formats before columnar blocks also keep channels in package-level pools, which ends
// a second synctest bubble.
const Format = pebble.FormatValueSeparation

const bloomBitsPerKey = 10

// MaxMemTables is how many full memtables, each with a log, there can be before
// writes wait for a flush.
const MaxMemTables = 4

// compactFrom makes the engine compact each table that a flush makes into the level below: it counts two for a layer
// of them. By default the engine waits for further flushes. In a host that has deleted much and then writes little
// they do not come: the deleted rows would keep the disk, and reads would walk over the deletions.
const compactFrom = 2

// maxManifest bounds the manifest, the file that lists tables, in bytes: beyond it the engine begins a new one. The
// manifest grows with each flush and compaction, and Open reads all of it. The engine's own bound is 128 MiB.
const maxManifest = 1 << 20

// Default sizes of a store, in bytes.
const (
	Cache    = 64 << 20
	MemTable = 64 << 20
)

// Options returns Pebble's options for a store on fs, with a block cache of at least cache bytes, and memtables of memTable bytes.
// Pebble takes the memory of the memtables from the cache, so the cache gets the memory of both: while the memtables are small
// it holds more blocks. release releases the caller's reference to the cache; the database has its own.
func Options(fs vfs.FS, cache, memTable int64) (o *pebble.Options, release func()) {
	c := pebble.NewCache(cache + MaxMemTables*memTable)
	o = &pebble.Options{
		FS:                          fs,
		Cache:                       c,
		FormatMajorVersion:          Format,
		MemTableSize:                uint64(memTable),
		MemTableStopWritesThreshold: MaxMemTables,
		L0CompactionThreshold:       compactFrom,
		MaxManifestFileSize:         maxManifest,
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBitsPerKey)
	}
	return o, c.Unref
}

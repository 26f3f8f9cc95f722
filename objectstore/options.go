package objectstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"iter"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dohost/dohost/internal/engine"
	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/guard"
	"github.com/dohost/dohost/sharedlog"
)

// Stage is a stage of a record.
type Stage uint8

// The stages.
const (
	StageTake    Stage = iota // about to be made, from the commits in the queue
	StageSync                 // written and readable, not synced; with Options.Shared, before the append to the log
	StageDurable              // synced; its outputs have not left
)

// Options tunes a Store. A nil *Options, and the zero Options, mean the defaults.
type Options struct {
	// FS is the file system of the store. Nil means the disk.
	FS *FS
	// Logger gets the store's and the engine's messages. Its handler is called on goroutines of its own. A message is lost if the
	// handler panics on it, and messages are dropped while a call takes longer than a second. Nil discards all messages.
	Logger *slog.Logger
	// Cache is the least size of the block cache in bytes. The cache also uses the memory of four memtables, as far as they do not use
	// it. Zero means 64 MiB.
	Cache int64
	// MemTable is the size of a memtable in bytes. Zero means 64 MiB.
	MemTable int64
	// MaxObjectBytes bounds the committed bytes of one object that are not durable. A write
	// returns ErrFull while there are more. Zero means 8 MiB.
	MaxObjectBytes int64
	// MaxHostBytes bounds the bytes of all objects that are not durable: open batches, commits, and unreleased outputs with a
	// size. A write that would exceed it returns ErrFull, except in the favored batch: see Memory in the package comment. Zero
	// means 256 MiB.
	MaxHostBytes int64
	// ReserveBytes is the free disk space below which Put returns ErrNoSpace. Zero means four times MemTable, 64 MiB
	// at least; negative means none. The engine may take that before the next check of the disk, by a log with a
	// concurrent flush and a compaction. A log that finds no room fails the store.
	ReserveBytes int64
	// ReadOnly opens a store that no host is using, to check or export it.
	ReadOnly bool
	// OnFail is called once, on a goroutine of its own, when the store has
	// failed. The store refuses everything by then. A panic is logged.
	OnFail func(error)
	// OnDropped is called, on a goroutine of its own, when the store drops the commits of an
	// object that are not durable, because the engine could not read the alarm slot that they
	// replace. The epoch then no longer owns the range.
	OnDropped func(id ID, epoch Epoch, cause error)
	// OnSpace is called when the store begins to refuse writes for lack of space, and when it accepts them again, on a
	// goroutine of its own. A writer or the committer waits for it: it must not block. A panic is logged.
	OnSpace func(DiskSpace)
	// OnDamage is called the first time that a part of the store cannot be read, on a goroutine of its own. The read, or the
	// engine, waits for it: it must not block or use the store. A panic is logged.
	OnDamage func(Damage)
	// OnAlarms gets the changes of slots in the order of their records: after the sync, before the outputs of the
	// same record are released. The committer calls it; it must not block, and may keep the slice. A panic or
	// runtime.Goexit fails the store.
	OnAlarms func([]AlarmChange)
	// Hook is called by the committer at each stage of a record, with the objects in it; at StageTake, with the
	// objects that have queued commits. It may block, and may fence ranges. A panic is logged; runtime.Goexit fails
	// the store. Nil disables it.
	Hook func(stage Stage, objects iter.Seq[ID])
	// Entropy is the source of the random parts of the store's identity and of the names of logs; several goroutines
	// may read it concurrently. Nil means [rand.Reader]; a test has one with a seed.
	Entropy io.Reader
	// Reads counts the engine's work for reads: a seam for tests. Nil counts nothing.
	Reads *Reads
	// Ship puts the records into an archive. Nil ships nothing. With ReadOnly it is not used.
	Ship *Shipping
	// Shared keeps the history of the store in a shared log. Nil keeps it in the directory. It excludes Ship and ReadOnly.
	Shared *Shared
	// OneObject lets a record hold the writes of one object only: a seam for tests that
	// schedule the committer.
	OneObject bool

	unlogged bool // the engine writes no log: of a restore
	standby  bool // with ReadOnly: the engine gets the records of an archive
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Entropy == nil {
		d.Entropy = rand.Reader
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	} else {
		d.Logger = slog.New(guard.Handler(d.Logger.Handler()))
	}
	for _, f := range []struct {
		field *int64
		value int64
	}{
		{&d.Cache, engine.Cache},
		{&d.MemTable, engine.MemTable},
		{&d.MaxObjectBytes, 8 << 20},
		{&d.MaxHostBytes, 256 << 20},
	} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	if d.ReserveBytes == 0 {
		d.ReserveBytes = max(minReserve, engine.MaxMemTables*d.MemTable)
	}
	return d
}

func (o *Options) check() error {
	switch s := o.Shared; {
	case s == nil:
		return nil
	case s.Lease == nil || s.Context == nil:
		return fmt.Errorf("%w: Shared needs a Lease and a Context", errkind.ErrMisuse)
	case o.Ship != nil || o.ReadOnly:
		return fmt.Errorf("%w: a store with a lease can neither ship its records nor be read-only", errkind.ErrMisuse)
	}
	return nil
}

func (o *Options) vfs() vfs.FS {
	if o.FS == nil {
		return theDisk
	}
	return &faultyFS{FS: o.FS.base, f: o.FS}
}

// Shared configures a store with its history in a shared log: see Shared log in the package comment.
type Shared struct {
	// Lease is the right to append to the log. It is required, and is for one Open. Close releases it. If Open fails, it is not
	// released, and the log may have the record of the host: the caller releases the lease, and acquires the log again.
	Lease sharedlog.Lease
	// Context is the parent of the contexts of the lease's calls. It is required, and must not end before Close has returned.
	Context context.Context
	// BaseAfter is how many bytes of records follow a base in the log, in addition to the size of the base, before the next base is written. Zero
	// means 64 MiB.
	BaseAfter int64

	part int // the size of a part of a base, for tests; zero means maxBasePart
}

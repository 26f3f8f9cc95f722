package dohost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"

	"github.com/dohost/dohost/internal/guard"
	"github.com/dohost/dohost/objectstore"
)

// Standby is a copy of a store that follows the archive of another host ([Options].Ship). It runs no object and fires no alarm; its
// durable state can be inspected, and it can be promoted. Its methods may be called from any goroutine.
type Standby struct {
	y *objectstore.Standby
	inspection
}

// StandbyStatus describes a [Standby] after its last pass over the archive.
type StandbyStatus = objectstore.StandbyStatus

// StandbyOptions tunes a [Standby]. A nil *StandbyOptions, and the zero StandbyOptions, mean the defaults.
type StandbyOptions struct {
	// Logger gets the progress of the standby. Nil discards it.
	Logger *slog.Logger
}

// OpenStandby opens the standby in dir, which must be one, or absent, or empty. The classes are used to inspect their objects. The
// caller runs Follow, and closes the standby. Errors: [ErrConflict] if another process has the folder open, or if it has a store that is
// no standby, for instance a promoted one; [ErrDamaged] for a folder with other files, or in an unknown format; the disk's.
func OpenStandby(dir string, from Archive, o *StandbyOptions, classes ...Class) (*Standby, error) {
	opts := &objectstore.Options{}
	if o != nil {
		opts.Logger = o.Logger
	}
	byName := map[string]Class{}
	var invalid []error
	for _, c := range classes {
		invalid = append(invalid, c.errs...)
		if _, twice := byName[c.Name()]; twice {
			invalid = append(invalid, fmt.Errorf("dohost: class %q is bound twice", c.Name()))
		}
		byName[c.Name()] = c
	}
	if err := errors.Join(invalid...); err != nil {
		return nil, err
	}
	y, err := objectstore.OpenStandby(dir, from, opts)
	if err != nil {
		return nil, err
	}
	panicked := func(id ID, err error, stack []byte) {
		if opts.Logger != nil {
			log := slog.New(guard.Handler(opts.Logger.Handler()))
			log.Error("a function that lists items panicked", "object", id.String(), "err", err, "stack", string(stack))
		}
	}
	return &Standby{y, inspection{y.Store, byName, panicked}}, nil
}

// Follow applies the records of the archive as they come, until ctx ends or the standby is promoted; then it returns nil. It begins with
// the newest base, and lists the archive about once a second. It verifies each record and its link to the one before. While the archive has no base,
// lacks a record or cannot be read, or the disk is almost full, it waits: see Status. Errors, after which the standby has the records
// before: [ErrDamaged] with the number of a damaged or repeated record; [ErrConflict] for an archive of another history; the disk's. If a
// read of the archive hangs when ctx ends, the error names the read.
func (y *Standby) Follow(ctx context.Context) error { return y.y.Follow(ctx) }

// Status describes the standby. It reads no disk.
func (y *Standby) Status() StandbyStatus { return y.y.Status() }

// Promote applies the records that the archive has, and makes the folder a store for [Open]. Follow then returns nil, and the standby
// can be inspected until Close. The first host that opens the store makes a history of its own: it needs another archive. If the archive
// lacks a record or the last applied one, has no complete base yet, or cannot be read, the error is [ErrConflict], with the code
// standby_lags of [DescribeError], and the standby continues. It is the error, too, while a read of the archive hangs. Other errors: the
// errors of Follow, which ends with them, too.
//
// Promote does not stop a host that still ships to the archive. From then on there are two stores with different histories.
func (y *Standby) Promote(ctx context.Context) (StandbyStatus, error) { return y.y.Promote(ctx) }

// PromoteAsIs promotes the standby without reading the archive, and interrupts a read of Follow or Promote. The promoted store lacks the records that only the
// archive has. Other errors: [ErrNotFound] before the first base is complete.
func (y *Standby) PromoteAsIs(ctx context.Context) (StandbyStatus, error) {
	return y.y.PromoteAsIs(ctx)
}

// Close ends reads with [ErrFenced] and closes the standby. It does not wait for a read of the archive that hangs. The next OpenStandby
// continues after the last applied record.
func (y *Standby) Close() error { return y.y.Close() }

// Classes returns the classes of OpenStandby, in order of their names.
func (y *Standby) Classes() []Class { return y.bound() }

// StoredClasses is [Host.StoredClasses]. Before the first base is complete, this and the other reads return [ErrNotFound].
func (y *Standby) StoredClasses(ctx context.Context) ([]string, error) { return y.storedClasses(ctx) }

// Objects is [Host.Objects].
func (y *Standby) Objects(ctx context.Context, class, after string) iter.Seq2[ID, error] {
	return y.objects(ctx, class, after)
}

// Inspect is [Host.Inspect]: no object is in memory.
func (y *Standby) Inspect(ctx context.Context, id ID) (Info, error) {
	info := Info{ID: id}
	if err := id.Validate(); err != nil {
		return Info{}, err
	}
	if err := y.inspect(ctx, &info); err != nil {
		return Info{}, err
	}
	return info, nil
}

// IsLive returns false: no object is in memory.
func (y *Standby) IsLive(ID) bool { return false }

// FindDetails is [Host.FindDetails].
func (y *Standby) FindDetails(ctx context.Context, id ID, q *DetailQuery) iter.Seq2[Resource, error] {
	return y.findDetails(ctx, id, q)
}

// Export is [Host.Export].
func (y *Standby) Export(ctx context.Context, id ID, w io.Writer) error { return y.export(ctx, id, w) }

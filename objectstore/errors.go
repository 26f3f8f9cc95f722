package objectstore

import (
	"errors"

	"github.com/dohost/dohost/internal/errkind"
)

// Errors of Open. ErrFormat also marks a record of an unknown version.
var (
	// ErrLocked reports that another host has the store open.
	ErrLocked = errkind.New(errkind.ErrConflict, "locked by another host")
	// ErrFormat reports data in a format that this build does not read.
	ErrFormat = errkind.New(errkind.ErrDamaged, "unknown format")
	// ErrForeign reports that the directory holds other files than a store, or a store with the database of another
	// one.
	ErrForeign = errkind.New(errkind.ErrDamaged, "not a store")
	// ErrAbsent reports that the database of a store is missing or incomplete, or that there is no store to open
	// read-only.
	ErrAbsent = errkind.New(errkind.ErrNotFound, "store not found")
)

// Errors of a running store.
var (
	// ErrFenced reports that a commit or an output came from an incarnation that does not own its range, or that the
	// store has failed or is closed.
	ErrFenced = errkind.ErrFenced
	// ErrClosed is wrapped with ErrFenced when the store was closed.
	ErrClosed = errors.New("dohost: store closed")
	// ErrNoSpace reports that the disk has less free space than Options.ReserveBytes, or that the engine's last flush
	// failed. In the second case the error wraps the error of the flush.
	ErrNoSpace = errkind.ErrNoSpace
	// ErrReadOnlyStore reports that the store was opened with Options.ReadOnly.
	ErrReadOnlyStore = errkind.New(errkind.ErrForbidden, "the store was opened read-only")
)

package objectstore

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/guard"
)

// ErrDamaged is the error of a read that needs a damaged block of the disk, which does
// not match its checksum. Reads that do not need the block succeed. The error is a
// [*DamageError].
var ErrDamaged = errkind.New(errkind.ErrDamaged, "damaged block")

// DamageError is the error of a read that needs a damaged block.
type DamageError struct {
	// Object is the object that was read; zero for a read across objects.
	Object ID
	Damage Damage
}

// Damage describes a part of the store that cannot be read: a block of a file, or a
// record of this package.
type Damage struct {
	File   string // path of the file that has the block
	Key    string // of the record, if no block is damaged
	Detail string // the position of the block, and the reason
}

// Error implements error.
func (e *DamageError) Error() string {
	if e == nil {
		return "dohost: nil *DamageError"
	}
	if e.Object == (ID{}) {
		return fmt.Sprintf("%v: %s: %s", ErrDamaged, e.Damage.File, e.Damage.Detail)
	}
	return fmt.Sprintf("%v: reading %s: %s: %s", ErrDamaged, e.Object, e.Damage.File, e.Damage.Detail)
}

// Is makes the error ErrDamaged, and its kind.
func (e *DamageError) Is(target error) bool {
	return target == ErrDamaged || target == errkind.ErrDamaged
}

// maxDamages bounds the entries of damages.
const maxDamages = 1024

// damages is the set of unreadable parts of a store that reads and compactions have
// met since Open. Its methods may be called from any goroutine, also with locks of the
// engine held.
type damages struct {
	log *slog.Logger
	on  func(Damage)

	mu    sync.Mutex
	known map[Damage]struct{}
}

// add logs and reports a part of the store the first time that it is found unreadable, up to maxDamages parts.
func (d *damages) add(found Damage) {
	d.mu.Lock()
	_, known := d.known[found]
	if known || len(d.known) >= maxDamages {
		d.mu.Unlock()
		return
	}
	if d.known == nil {
		d.known = make(map[Damage]struct{})
	}
	d.known[found] = struct{}{}
	d.mu.Unlock()
	d.log.Error("part of the store cannot be read", "file", found.File, "key", found.Key, "detail", found.Detail)
	if d.on == nil {
		return
	}
	if f := guard.Run(func() { d.on(found) }); f != nil {
		d.log.Error("OnDamage failed", "cause", f, "stack", string(f.Stack))
	}
}

// damageOf leaves out the engine's hints and stacks.
func damageOf(info pebble.DataCorruptionInfo) Damage {
	return Damage{File: info.Path, Detail: info.Details.Error()}
}

func (d *damages) count() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return int64(len(d.known))
}

// readError describes an error of the engine that a read of key met. The key names
// the object, if it has the object's whole prefix.
func readError(key []byte, err error) error {
	info := pebble.ExtractDataCorruptionInfo(err)
	if info == nil {
		return fmt.Errorf("dohost: reading the store: %w", err)
	}
	e := &DamageError{Damage: damageOf(*info)}
	e.Object = objectOf(key)
	return e
}

// objectOf returns the object that a key of the store belongs to; zero if none.
func objectOf(key []byte) ID {
	if len(key) == 0 || key[0] != keyObject {
		return ID{}
	}
	id, _, _ := splitID(key[1:])
	return id
}

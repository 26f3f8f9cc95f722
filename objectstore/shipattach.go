package objectstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/frame"
)

// ErrForeignArchive reports an archive with the records of another store, or of another history of this store.
var ErrForeignArchive = errkind.New(errkind.ErrConflict, "the archive is not of this store's history")

// archiveEnd is the newest content of an archive.
type archiveEnd struct {
	last frame.Name // the object with the newest record; zero if there is none
	prev frame.Name // the object before last: its newest record is older
	// base is the newest complete base, and hasBase reports whether there is one and the records from it to the end.
	base      archivedBase
	hasBase   bool
	sinceBase int64 // bytes of records after the base
	damaged   bool  // the newest object was damaged, and last is the object before it
}

// endOf finds the end in a list of objects.
func endOf(objects []ArchiveObject) (e archiveEnd) {
	list := parseObjects(objects)
	if n := len(list.bases); n > 0 {
		e.base, e.hasBase = list.bases[n-1], true
		e.last = e.base.parts[0]
		if n > 1 {
			e.prev = list.bases[n-2].parts[0]
		}
	}
	linked := e.base.number
	for _, r := range list.records {
		if r.Last > e.last.Last {
			e.prev, e.last = e.last, r.Name
		} else if r.Last > e.prev.Last && r.Last < e.last.Last {
			e.prev = r.Name
		}
		if r.Last > linked && r.First <= linked+1 {
			linked = r.Last
			e.sinceBase += r.size
		}
	}
	e.hasBase = e.hasBase && linked == e.last.Last
	return e
}

// attach compares the end of the archive with the store, and finds the place where shipping continues: the archive
// alone decides which records are shipped, so a crash between a Put and its confirmation leaves neither a gap nor a
// repeated record.
func (sh *shipper) attach(ctx context.Context) error {
	objects, err := sh.opts.Archive.List(ctx)
	if err != nil {
		return fmt.Errorf("listing the archive: %w", err)
	}
	e := endOf(objects)
	at := frame.Position{}
	if e.last != (frame.Name{}) {
		if at, err = sh.endPosition(ctx, &e); err != nil {
			return err
		}
		if err = sh.compare(&at); err != nil {
			return err
		}
	}
	sh.dropBase() // the archive may have changed
	sh.at, sh.linked, sh.shipment = at, e.last != (frame.Name{}) && !e.damaged, nil
	sh.newest, sh.checked = archivedAt{e.last, at}, time.Now()
	sh.lastSeen = sh.newest
	sh.baseBytes, sh.sinceBase = e.base.bytes, e.sinceBase
	sh.mu.Lock()
	sh.attached, sh.needsBase = true, !e.hasBase
	sh.mu.Unlock()
	if e.last != (frame.Name{}) {
		sh.mu.Lock()
		oldest := sh.oldest
		sh.mu.Unlock()
		if oldest.IsZero() {
			oldest = sh.s.opened
		}
		sh.sentThrough(at.Number, 0, oldest)
	}
	return nil
}

// endPosition returns the position of the end. If the newest object is damaged, it is the end of the object before, and a new base
// is needed: the records after it are not linked to the archive.
func (sh *shipper) endPosition(ctx context.Context, e *archiveEnd) (at frame.Position, err error) {
	at, err = positionOf(ctx, sh.opts.Archive, e.last)
	if !errors.Is(err, ErrDamagedArchive) || e.prev == (frame.Name{}) {
		return at, err
	}
	sh.mu.Lock()
	made := sh.made
	sh.mu.Unlock()
	if e.last.Last > made {
		return at, fmt.Errorf("%w: the archive has records up to %d, this store only up to %d", ErrForeignArchive, e.last.Last, made)
	}
	sh.s.opts.Logger.Error("the newest object of the archive is damaged, a new base is needed", "err", err)
	e.last, e.damaged, e.hasBase = e.prev, true, false
	return positionOf(ctx, sh.opts.Archive, e.last)
}

// archivedAt is an object of the archive and the position after its newest record; zero if there is none.
type archivedAt struct {
	name frame.Name
	at   frame.Position
}

// checkTime is the minimum time between two checks that the archive still has its newest object. A check reads one object.
const checkTime = time.Minute

// checkArchive is called before records are put. Once a minute it reads the object that was the newest one at the previous
// check: an archive that was emptied, replaced or unmounted since does not have it, even if objects were put later. The
// archive is then compared with the store as at Open. If the object is damaged, a new base is made. In both cases it returns
// false: the shipment must not be put.
func (sh *shipper) checkArchive() (valid bool, err error) {
	now := time.Now()
	if now.Sub(sh.checked) < checkTime {
		return true, nil
	}
	if w := sh.lastSeen; w.name != (frame.Name{}) {
		kept, err := sh.has(w)
		switch {
		case errors.Is(err, ErrDamagedArchive):
			sh.s.opts.Logger.Error("an object of the archive is damaged, a new base is needed", "err", err)
			sh.unlink()
			sh.lastSeen, sh.newest, sh.checked = archivedAt{}, archivedAt{}, now
			return false, nil
		case err != nil:
			return false, err
		case !kept:
			sh.s.opts.Logger.Error("the archive has lost objects, it is compared with the store again", "object", w.name.String())
			sh.mu.Lock()
			sh.attached = false
			sh.mu.Unlock()
			return false, nil
		}
	}
	sh.lastSeen, sh.checked = sh.newest, now
	return true, nil
}

// unlink makes a base necessary: the records after it are the next ones that are shipped. A base that is being put may be of
// an earlier record, so it is dropped. The numbers of the records in between are missing in the archive, so a host that
// attaches before the new base is complete begins another one.
func (sh *shipper) unlink() {
	sh.dropBase()
	sh.linked, sh.shipment = false, nil
	sh.mu.Lock()
	sh.needsBase = true
	sh.mu.Unlock()
}

// has reports whether the archive still has an object. Errors: ErrDamagedArchive, the archive's.
func (sh *shipper) has(w archivedAt) (bool, error) {
	at, err := positionOf(sh.ctx, sh.opts.Archive, w.name)
	switch {
	case err == nil:
		return at == w.at, nil
	case errors.Is(err, ErrDamagedArchive):
		return false, err
	}
	objects, listErr := sh.opts.Archive.List(sh.ctx)
	if listErr != nil {
		return false, fmt.Errorf("listing the archive: %w", listErr)
	}
	if slices.ContainsFunc(objects, func(o ArchiveObject) bool { return o.Name == w.name.String() }) {
		return false, err
	}
	return false, nil
}

// open is attach during Open: an archive of another history is an error of Open, and an archive that cannot be read is
// compared later.
func (sh *shipper) open() error {
	ctx, cancel := context.WithTimeout(sh.ctx, shipOpenTime)
	defer cancel()
	err := sh.attach(ctx)
	if errors.Is(err, ErrForeignArchive) {
		return err
	}
	if err != nil {
		sh.failed(err, 0)
	}
	return nil
}

// positionOf returns the position after the newest record of an object.
func positionOf(ctx context.Context, from Archive, n frame.Name) (at frame.Position, err error) {
	content, err := from.Get(ctx, n.String())
	if err != nil {
		return at, fmt.Errorf("reading the end of the archive: %w", err)
	}
	if n.Base() {
		b := frame.NewBase(n.Last)
		_, err = b.Next(content)
		at, _ = b.Position()
	}
	for rest := content; !n.Base() && err == nil && len(rest) > 0; {
		var f frame.Frame
		f, rest, err = frame.Decode(rest)
		at = frame.After(&f)
	}
	if err == nil && at.Number != n.Last {
		err = fmt.Errorf("it ends with record %d", at.Number)
	}
	if err != nil {
		return at, fmt.Errorf("%w: object %v: %w", ErrDamagedArchive, n, err)
	}
	return at, nil
}

// compare compares the end of the archive with the frames in the store.
func (sh *shipper) compare(at *frame.Position) error {
	s := sh.s
	here := Identity{Store: at.Store.String(), Fork: at.Fork}
	if here != s.identity {
		return fmt.Errorf("%w: the archive is of %v, this store is %v", ErrForeignArchive, here, s.identity)
	}
	sh.mu.Lock()
	made := sh.made
	sh.mu.Unlock()
	if at.Number > made {
		return fmt.Errorf("%w: the archive has records up to %d, this store only up to %d", ErrForeignArchive, at.Number, made)
	}
	for i, sum := range []func(*frame.Frame) frame.Sum{
		func(f *frame.Frame) frame.Sum { return f.Sum },
		func(f *frame.Frame) frame.Sum { return f.Prev },
	} {
		f, ok, err := s.frameOf(at.Number + uint64(i))
		if err != nil && !damagedRecord(err) {
			return err
		}
		if ok && sum(&f) != at.Sum {
			return fmt.Errorf("%w: record %d of the archive differs from the record of this store", ErrForeignArchive, at.Number)
		}
	}
	return nil
}

// damagedRecord reports whether the error is of a record of this package, such as a frame or a slot, that the store has and cannot read.
func damagedRecord(err error) bool { return errors.Is(err, ErrDamaged) || errors.Is(err, ErrFormat) }

// frameOf returns the frame of a record, if the store still has it. With an error ok is false.
func (s *Store) frameOf(number uint64) (f frame.Frame, ok bool, err error) {
	v, ok, err := s.frame(nil, number)
	if !ok || err != nil {
		return f, false, err
	}
	f, _, err = frame.Decode(v)
	if err != nil {
		return f, false, fmt.Errorf("%w: frame of record %d: %w", ErrFormat, number, err)
	}
	return f, true, nil
}

// frame appends the bytes of the frame of a record to dst, if the store still has it.
func (s *Store) frame(dst []byte, number uint64) (_ []byte, ok bool, err error) {
	if !s.engine.acquire() {
		return dst, false, s.refusal()
	}
	defer s.engine.release()
	return s.appendGet(dst, s.db, frameKey(number))
}

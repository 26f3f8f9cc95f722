package objectstore

import (
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// importStream reads the frames of an export. It trusts no length in it.
type importStream struct {
	dec  *msgpack.Decoder
	sum  checksum
	rows uint64
}

func (in *importStream) header() error {
	magic, err := in.bytes(len(exportMagic))
	if err != nil || string(magic) != exportMagic {
		return fmt.Errorf("%w: the header of an export is missing", ErrStream)
	}
	n, err := in.dec.DecodeUint64()
	if err != nil {
		return broken(err)
	}
	if n != exportNumber {
		return fmt.Errorf("%w: export has format %d, this build reads format %d", ErrFormat, n, exportNumber)
	}
	return nil
}

func broken(err error) error { return fmt.Errorf("%w: %w", ErrStream, err) }

// bytes reads a text or byte string of at most limit bytes.
func (in *importStream) bytes(limit int) ([]byte, error) {
	n, err := in.dec.DecodeBytesLen()
	if err != nil {
		return nil, err
	}
	if n < 0 {
		return nil, errors.New("a field is nil")
	}
	if n > limit {
		return nil, &LimitError{Subject: "field", Size: n, Limit: limit}
	}
	b := make([]byte, n)
	return b, in.dec.ReadFull(b)
}

// frame reads one frame into the import's batch. done reports that it was the last one, and that the checksum and
// the number of rows are right.
func (in *importStream) frame(im *importer) (done bool, err error) {
	kind, err := in.dec.DecodeUint8()
	if err != nil {
		return false, broken(err)
	}
	switch kind {
	case frameRow:
		return false, in.row(im)
	case frameSlot:
		return false, in.slot(im)
	case frameEnd:
		return true, in.end()
	}
	return false, fmt.Errorf("%w: unknown frame kind %d", ErrStream, kind)
}

func (in *importStream) row(im *importer) error {
	key, keyErr := in.bytes(1 + MaxKey)
	value, err := in.bytes(MaxValue)
	if err = errors.Join(keyErr, err); err != nil {
		return broken(err)
	}
	in.sum.add(frameRow, key, value)
	in.rows++
	if len(key) < 2 || Space(key[0]) != SpaceKV && Space(key[0]) != SpaceCollection {
		return fmt.Errorf("%w: invalid row key %q", ErrStream, key)
	}
	if Space(key[0]) == SpaceCollection {
		if value, err = importedFeed(key[1:], value); err != nil {
			return err
		}
	}
	return im.batch.retryFull(im.ctx, func() error { return im.batch.Put(Space(key[0]), key[1:], value, false) })
}

func (in *importStream) slot(im *importer) error {
	b, err := in.bytes(MaxValue)
	if err != nil {
		return broken(err)
	}
	in.sum.add(frameSlot, b)
	slot, err := decodeSlot(b)
	if err != nil {
		return err
	}
	im.slot, im.hasSlot = im.s.importedSlot(slot), true
	return nil
}

// importedSlot returns the slot of another store, or of an earlier moment, with a new generation. A delivery of the
// old slot does not count for the new one, and the charging host is unknown to this store.
func (s *Store) importedSlot(slot Slot) Slot {
	slot.First = slot.Setting()
	slot.Generation = s.NewAlarmGeneration()
	slot.Charge.Host, slot.Charge.Begun = 0, false
	return slot
}

func (in *importStream) end() error {
	sum := in.sum.h.Sum32()
	rows, err := in.dec.DecodeUint64()
	if err != nil {
		return broken(err)
	}
	want, err := in.dec.DecodeUint32()
	if err != nil {
		return broken(err)
	}
	if rows != in.rows || want != sum {
		return fmt.Errorf("%w: it contains %d rows with checksum %08x, but was written with %d rows and checksum %08x", ErrStream, in.rows, sum, rows, want)
	}
	return nil
}

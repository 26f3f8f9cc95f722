package objectstore

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/dohost/dohost/internal/errkind"
)

// ErrNoObject reports that an object to be exported has neither a row nor an alarm, or is half imported.
var ErrNoObject = errkind.New(errkind.ErrNotFound, "no such object")

// An export is a sequence of msgpack values: the magic text and the format
// number; then frames, each a kind and its fields; the last one is frameEnd.
const (
	exportMagic  = "dohost object"
	exportNumber = 1

	frameEnd  = 0 // number of rows, checksum of all frames before
	frameRow  = 1 // key with its space, value
	frameSlot = 2 // encoded slot
)

// checksum covers the fields of frames, each with its length, so that it does not
// depend on how msgpack writes them.
type checksum struct{ h hash.Hash32 }

func newChecksum() checksum {
	return checksum{crc32.New(crc32.MakeTable(crc32.Castagnoli))}
}

func (c checksum) add(kind byte, fields ...[]byte) {
	c.h.Write([]byte{kind})
	for _, f := range fields {
		c.h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(f))))
		c.h.Write(f)
	}
}

// exporter writes frames and keeps the first error.
type exporter struct {
	enc  *msgpack.Encoder
	sum  checksum
	rows uint64
	err  error
}

func (e *exporter) do(err error) {
	if e.err == nil {
		e.err = err
	}
}

func (e *exporter) frame(kind byte, fields ...[]byte) {
	e.sum.add(kind, fields...)
	e.do(e.enc.EncodeUint8(kind))
	for _, f := range fields {
		e.do(e.enc.EncodeBytes(f))
	}
}

// end writes the last frame.
func (e *exporter) end() {
	e.do(e.enc.EncodeUint8(frameEnd))
	e.do(e.enc.EncodeUint64(e.rows))
	e.do(e.enc.EncodeUint32(e.sum.h.Sum32()))
}

// Export writes the object's rows and alarm as a stream that Import reads. The
// stream ends with a count and a checksum. Errors: ErrNoObject, ErrDamaged, ErrFenced, the errors of w.
func (sn *Snapshot) Export(id ID, w io.Writer) error {
	if ok, err := sn.Exists(id); err != nil || !ok {
		if err == nil {
			err = fmt.Errorf("%w: %s", ErrNoObject, id)
		}
		return err
	}
	out := bufio.NewWriter(w)
	e := &exporter{enc: msgpack.NewEncoder(out), sum: newChecksum()}
	e.do(e.enc.EncodeString(exportMagic))
	e.do(e.enc.EncodeUint(exportNumber))
	if err := sn.exportRows(id, e); err != nil {
		return err
	}
	e.end()
	e.do(out.Flush())
	return e.err
}

func (sn *Snapshot) exportRows(id ID, e *exporter) error {
	prefix := appendObject(nil, id)
	w, err := sn.walk(prefix, pastObject(id))
	if err != nil {
		return err
	}
	defer w.close()
	ok, err := w.first()
	for ; ok && err == nil && e.err == nil; ok, err = w.next() {
		key := w.key[len(prefix):]
		if string(key) == string(slotRow) {
			e.frame(frameSlot, w.value)
			continue
		}
		e.rows++
		e.frame(frameRow, key, w.value)
	}
	return err
}

// Package frame is the format of a store's records outside of the store: it encodes, decodes and verifies frames. It is
// pure, and knows neither a database nor a file system.
//
// # Frames
//
// A frame is a record with its place in the history of a store. All numbers are big-endian:
//
//	magic        4  "dhf1"
//	kind         1  'r' a record, 'b' a part of a base, 'e' the last part of a base
//	length       4  of the payload, at most MaxPayload
//	store       16  the ULID of the store
//	fork         4  of the store's identity; with the generation, the epoch of the record
//	generation   8  of the host that made the record
//	number       8  of the record; of a base, the number of the last record that it includes
//	part         4  of a base, from 0; 0 in a record
//	time         8  of the record, in nanoseconds since 1970; never less than that of the record before
//	previous    32  the sum of the frame before, or zero if there is none
//	payload         operations
//	sum         32  SHA-256 of all bytes before it
//
// The sum is the checksum of its frame and, as the next frame's previous, the link to it. So a changed bit, a missing,
// repeated or reordered frame, and a frame of another history are detected, and the error has the number of the frame.
//
// A base is the complete state after the record with its number. The first part's previous is the sum of that record's
// frame, so record number+1 continues both. The previous of another part is the sum of the part before it.
//
// # Payloads
//
// A payload is a sequence of operations, in the encoding of Pebble's batches: a kind (1 sets a key, 0 deletes one, 15
// deletes the range from a key to a limit, exclusive), the length of the key as a varint, and the key; then, unless one
// key is deleted, the length of the value or of the limit, and that. Keys are those of package objectstore.
package frame

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/oklog/ulid/v2"
)

// Kind is the kind of a frame.
type Kind byte

// The kinds.
const (
	KindRecord  Kind = 'r'
	KindBase    Kind = 'b'
	KindBaseEnd Kind = 'e'
)

// MaxPayload bounds the payload of a frame, in bytes. A record is much smaller: the limits of objects bound it.
const MaxPayload = 1 << 30

const (
	magic      = "dhf1"
	headerSize = 4 + 1 + 4 + 16 + 4 + 8 + 8 + 4 + 8 + sha256.Size
)

// Sum is the checksum of a frame, and the link to it.
type Sum [sha256.Size]byte

// Header is a frame without its payload and its sum.
type Header struct {
	Kind       Kind
	Store      ulid.ULID
	Fork       uint32
	Generation uint64
	Number     uint64
	Part       uint32
	Time       int64 // in nanoseconds since 1970
	Prev       Sum
}

// Frame is a decoded frame.
type Frame struct {
	Header
	Payload []byte // a part of the decoded slice
	Sum     Sum
}

// Size returns the size of a frame, given the size of its payload.
func Size(payload int) int { return headerSize + payload + sha256.Size }

// Encode writes a frame to dst, which has the length of [Size], and returns its sum.
func Encode(dst []byte, h *Header, payload []byte) (sum Sum) {
	b := append(dst[:0], magic...)
	b = append(b, byte(h.Kind))
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, h.Store[:]...)
	b = binary.BigEndian.AppendUint32(b, h.Fork)
	b = binary.BigEndian.AppendUint64(b, h.Generation)
	b = binary.BigEndian.AppendUint64(b, h.Number)
	b = binary.BigEndian.AppendUint32(b, h.Part)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Time))
	b = append(b, h.Prev[:]...)
	b = append(b, payload...)
	sum = sha256.Sum256(b)
	copy(dst[len(b):], sum[:])
	return sum
}

// The reasons for a refusal of bytes.
var (
	errShort = errors.New("its frame is cut off")
	errMagic = errors.New("it is not a frame")
	errSum   = errors.New("the checksum of its frame does not match")
)

// Read reads the bytes of one frame from r, which [Decode] then checks. The error is io.EOF if there are none. If the frame is cut off, it
// returns the bytes that are there.
func Read(r io.Reader) ([]byte, error) {
	b := make([]byte, headerSize)
	n, err := io.ReadFull(r, b)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return b[:n], nil
	case err != nil:
		return nil, err
	}
	length := binary.BigEndian.Uint32(b[5:])
	if string(b[:len(magic)]) != magic || length > MaxPayload {
		return b, nil
	}
	out := bytes.NewBuffer(b) // it grows with the bytes that are there: the length may be damaged
	if _, err := io.CopyN(out, r, int64(length)+sha256.Size); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return out.Bytes(), nil
}

// Decode reads the frame at the beginning of b, and checks its sum. It returns the bytes after the frame.
func Decode(b []byte) (f Frame, rest []byte, err error) {
	if len(b) < len(magic) || string(b[:len(magic)]) != magic {
		return f, nil, errMagic
	}
	if len(b) < headerSize {
		return f, nil, errShort
	}
	length := binary.BigEndian.Uint32(b[5:])
	if length > MaxPayload {
		return f, nil, fmt.Errorf("its frame has a payload of %d bytes, the limit is %d", length, MaxPayload)
	}
	end := headerSize + int(length)
	if len(b) < end+sha256.Size {
		return f, nil, errShort
	}
	f.Sum = sha256.Sum256(b[:end])
	if !bytes.Equal(f.Sum[:], b[end:end+sha256.Size]) {
		return f, nil, errSum
	}
	f.Kind = Kind(b[4])
	f.Store = ulid.ULID(b[9:25])
	f.Fork = binary.BigEndian.Uint32(b[25:])
	f.Generation = binary.BigEndian.Uint64(b[29:])
	f.Number = binary.BigEndian.Uint64(b[37:])
	f.Part = binary.BigEndian.Uint32(b[45:])
	f.Time = int64(binary.BigEndian.Uint64(b[49:]))
	f.Prev = Sum(b[57:headerSize])
	f.Payload = b[headerSize:end:end]
	return f, b[end+sha256.Size:], nil
}

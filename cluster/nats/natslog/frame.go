package natslog

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// frame is the content of a message.
type frame struct {
	kind       byte
	generation uint64
	number     uint64 // of the record, for other kinds that of the newest record
	base       uint64 // the sequence of the message of the newest base; 0 for none
	part       uint32 // of the record, from 0
	parts      uint32
	payload    []byte // of a mark, its owner
}

const (
	kindRecord = 'r'
	kindMark   = 'o'
	kindBase   = 'b'

	magic      = "dhn1"
	frameStart = len(magic) + 1 + 8 + 8 + 8 + 4 + 4
)

func (f *frame) encode() []byte {
	b := make([]byte, 0, frameStart+len(f.payload))
	b = append(b, magic...)
	b = append(b, f.kind)
	b = binary.BigEndian.AppendUint64(b, f.generation)
	b = binary.BigEndian.AppendUint64(b, f.number)
	b = binary.BigEndian.AppendUint64(b, f.base)
	b = binary.BigEndian.AppendUint32(b, f.part)
	b = binary.BigEndian.AppendUint32(b, f.parts)
	return append(b, f.payload...)
}

var errFrame = errors.New("the message is not of a log of this package")

// decodeFrame returns the frame of a message. Its payload shares the memory of b.
func decodeFrame(b []byte) (f frame, err error) {
	if len(b) < frameStart || string(b[:len(magic)]) != magic {
		return f, errFrame
	}
	f.kind = b[len(magic)]
	at := b[len(magic)+1:]
	f.generation, f.number = binary.BigEndian.Uint64(at), binary.BigEndian.Uint64(at[8:])
	f.base = binary.BigEndian.Uint64(at[16:])
	f.part, f.parts = binary.BigEndian.Uint32(at[24:]), binary.BigEndian.Uint32(at[28:])
	f.payload = b[frameStart:]
	if f.kind != kindRecord && f.kind != kindMark && f.kind != kindBase || f.part >= f.parts {
		return f, fmt.Errorf("a message of kind %q is part %d of %d", f.kind, f.part+1, f.parts)
	}
	return f, nil
}

// newest is the number of the newest whole record if f is the last message of a log.
func (f *frame) newest() uint64 {
	if f.kind == kindRecord && f.part+1 < f.parts {
		return f.number - 1
	}
	return f.number
}

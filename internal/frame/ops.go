package frame

import (
	"encoding/binary"
	"errors"
	"iter"
)

// OpKind is the kind of an operation.
type OpKind byte

// The kinds of operations: the values of Pebble's batches.
const (
	OpDelete      OpKind = 0
	OpSet         OpKind = 1
	OpDeleteRange OpKind = 15
)

// Op is an operation of a payload.
type Op struct {
	Kind OpKind
	Key  []byte
	// Value is the value of the key or, for OpDeleteRange, the first key after the range.
	Value []byte
}

// AppendSet appends an operation that sets a key.
func AppendSet(b, key, value []byte) []byte {
	b = append(b, byte(OpSet))
	b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
	return append(binary.AppendUvarint(b, uint64(len(value))), value...)
}

// errOp is the error of a payload that is no sequence of operations.
var errOp = errors.New("its operations cannot be decoded")

// Ops yields the operations of a payload, in order. Their slices are parts of the payload.
func Ops(payload []byte) iter.Seq2[Op, error] {
	return func(yield func(Op, error) bool) {
		for len(payload) > 0 {
			op := Op{Kind: OpKind(payload[0])}
			var ok bool
			op.Key, payload, ok = cutBytes(payload[1:])
			switch op.Kind {
			case OpDelete:
			case OpSet, OpDeleteRange:
				if ok {
					op.Value, payload, ok = cutBytes(payload)
				}
			default:
				ok = false
			}
			if !ok || len(op.Key) == 0 {
				yield(Op{}, errOp)
				return
			}
			if !yield(op, nil) {
				return
			}
		}
	}
}

// cutBytes reads a length n and n bytes.
func cutBytes(b []byte) (value, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	b = b[size:]
	return b[:n:n], b[n:], true
}

package objectstore

import (
	"cmp"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dohost/dohost/internal/frame"
)

// replayBatch is the operations of a restore that are not written yet. Of several operations on a key it keeps the last one, because
// the database that is made has no readers. It writes them in the order of their keys: a key in the memtable is then close
// to the key before, and need not be searched from the top. The engine makes a table of a large batch without a memtable.
//
// Invariant: written in this order, the batch has the effect of the operations in the order of their addition. Deletions of ranges
// are written first. An operation on a key in such a range is written only if it was added after the deletion.
//
// The values are parts of the objects that were read from the archive.
type replayBatch struct {
	added  int64          // the number of operations that were added
	index  map[string]int // the place in ops, by key
	keys   []replayKey
	ops    []replayOp
	ranges []replayRange
}

// replayKey is a key and its place in ops. It is small, because sorting moves it.
type replayKey struct {
	key string
	op  int
}

// replayOp is the last operation on a key.
type replayOp struct {
	kind  frame.OpKind // frame.OpSet or frame.OpDelete
	value []byte
	at    int64 // replayBatch.added when the operation was added; 0 if it was dropped
}

// replayRange is a deletion of a range.
type replayRange struct {
	lower, upper []byte
	at           int64
}

// add adds an operation. It keeps the value and the bounds of a range, and copies the key.
func (b *replayBatch) add(op *frame.Op) {
	b.added++
	if op.Kind == frame.OpDeleteRange {
		b.ranges = append(b.ranges, replayRange{op.Key, op.Value, b.added})
		return
	}
	i, ok := b.index[string(op.Key)]
	if !ok {
		key := string(op.Key)
		i = len(b.ops)
		b.index[key] = i
		b.keys, b.ops = append(b.keys, replayKey{key, i}), append(b.ops, replayOp{})
	}
	b.ops[i] = replayOp{op.Kind, op.Value, b.added}
}

// take moves the operations into an engine batch.
func (b *replayBatch) take(s *Store) (batch engineBatch, err error) {
	slices.SortFunc(b.keys, func(x, y replayKey) int { return cmp.Compare(x.key, y.key) })
	size := batchHeader
	for _, k := range b.keys {
		size += maxOpHeader + len(k.key) + len(b.ops[k.op].value)
	}
	out := pebbleDB(s).NewBatch(pebble.WithInitialSizeBytes(size))
	for _, r := range b.ranges {
		err = errors.Join(err, out.DeleteRange(r.lower, r.upper, nil))
		b.drop(&r)
	}
	for _, k := range b.keys {
		err = errors.Join(err, b.ops[k.op].write(out, k.key))
	}
	clear(b.index)
	clear(b.ops) // it would keep the objects of the archive in memory
	*b = replayBatch{index: b.index, keys: b.keys[:0], ops: b.ops[:0]}
	return out, err
}

// maxOpHeader is the approximate maximum of the bytes of an operation in an engine batch, in addition to its key and value.
const maxOpHeader = 1 + 2*5

// drop marks the operations on the keys of a range that were added before its deletion as dropped. The keys are sorted.
func (b *replayBatch) drop(r *replayRange) {
	i, _ := slices.BinarySearchFunc(b.keys, string(r.lower), func(k replayKey, lower string) int { return cmp.Compare(k.key, lower) })
	for ; i < len(b.keys) && b.keys[i].key < string(r.upper); i++ {
		if op := &b.ops[b.keys[i].op]; op.at < r.at {
			op.at = 0
		}
	}
}

// write writes an operation, unless it was dropped.
func (op *replayOp) write(batch engineBatch, key string) error {
	if op.at == 0 {
		return nil
	}
	out := batch.(*pebble.Batch)
	d := (*pebble.DeferredBatchOp)(nil)
	if op.kind == frame.OpSet {
		d = out.SetDeferred(len(key), len(op.value))
		copy(d.Value, op.value)
	} else {
		d = out.DeleteDeferred(len(key))
	}
	copy(d.Key, key)
	return d.Finish()
}

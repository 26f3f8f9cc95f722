package objectstore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dohost/dohost/internal/frame"
)

// TestReplayBatchHasTheEffectOfItsOperationsInOrder adds random operations on few keys, and writes them after random numbers of them.
func TestReplayBatchHasTheEffectOfItsOperationsInOrder(t *testing.T) {
	const seeds, ops = 300, 120
	overwritten, covered := 0, 0
	for seed := range uint64(seeds) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		s := open(t, NewMemFS(), Options{MemTable: 1 << 20})
		db, b, want := pebbleDB(s), replayBatch{index: map[string]int{}}, map[string]string{}
		key := func() []byte { return fmt.Appendf(nil, "%c%02d", keyObject, rnd.IntN(12)) }
		write := func() {
			out, err := b.take(s)
			if err == nil {
				err = db.Apply(out.(*pebble.Batch), pebble.NoSync)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := rowsBetween(t, db, []byte{keyObject}, []byte{keyObject + 1}); !maps.Equal(got, want) {
				t.Fatalf("seed %d: the rows are %q, want %q", seed, got, want)
			}
		}
		for i := range ops {
			op := frame.Op{Kind: frame.OpSet, Key: key(), Value: fmt.Append(nil, i)}
			switch rnd.IntN(6) {
			case 0:
				op.Kind = frame.OpDeleteRange
				if op.Value = key(); string(op.Key) > string(op.Value) {
					op.Key, op.Value = op.Value, op.Key
				}
				n := len(want)
				maps.DeleteFunc(want, func(k, _ string) bool { return k >= string(op.Key) && k < string(op.Value) })
				covered += n - len(want)
			case 1:
				op.Kind, op.Value = frame.OpDelete, nil
				delete(want, string(op.Key))
			default:
				if _, ok := b.index[string(op.Key)]; ok {
					overwritten++
				}
				want[string(op.Key)] = string(op.Value)
			}
			if b.add(&op); rnd.IntN(20) == 0 {
				write()
			}
		}
		write()
		s.Abandon()
	}
	t.Logf("%d seeds: %d operations overwrote another one of their batch, deletions of ranges deleted %d rows", seeds, overwritten, covered)
	if overwritten < seeds || covered < seeds {
		t.Error("too few operations concern the same keys")
	}
}

// rowsBetween returns the rows of a range.
func rowsBetween(t *testing.T, db *pebble.DB, lower, upper []byte) map[string]string {
	t.Helper()
	rows := map[string]string{}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		t.Fatal(err)
	}
	for it.First(); it.Valid(); it.Next() {
		rows[string(it.Key())] = string(it.Value())
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return rows
}

package objectstore

import (
	"encoding/binary"

	"github.com/dohost/dohost/internal/invariants"
)

const (
	// maxPointDeletes is the maximum of keys that a DeleteAll reads and deletes one by one. It also deletes the keys of an earlier
	// DeleteAll in the same layer. For more keys a range tombstone is cheaper to write, but it slows the reads of every object in
	// the same memtable.
	maxPointDeletes = 1000
	// rangeDeleteSize is the weight of a range deletion against maxRecord, in bytes. Its encoding is smaller, but a record must not
	// have too many of them.
	rangeDeleteSize = 64 << 10
)

// clearing holds the keys that a DeleteAll has to delete from the engine. The goroutine that calls DeleteAll reads
// the keys, so that the committer, which serves all objects, reads nothing for it.
type clearing struct {
	keys []byte // of the rows, without the range's prefix, each after its length in two bytes
	n    int
	all  bool   // delete the whole range, instead of keys
	dead int64  // bytes that the deletion is known to hide
	at   uint64 // Range.commits when the keys were read
}

// size is the weight of the deletion against maxRecord, in bytes, with a key prefix of this length.
func (c *clearing) size(prefix int) int {
	if c.all {
		return rangeDeleteSize
	}
	return len(c.keys) + c.n*(prefix+rowOverhead)
}

// add implements rowSink.
func (c *clearing) add(key, value []byte) {
	if c.n++; c.n > maxPointDeletes {
		c.keys, c.all = nil, true
		return
	}
	c.keys = append(binary.BigEndian.AppendUint16(c.keys, uint16(len(key))), key...)
	c.dead += int64(len(value))
}

// yield calls f for each key.
func (c *clearing) yield(f func(key []byte) error) error {
	for rest := c.keys; len(rest) > 0; {
		n := 2 + int(binary.BigEndian.Uint16(rest))
		if err := f(rest[2:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// prefixed is a clearing that gets whole keys.
type prefixed struct {
	*clearing
	skip int
}

// add implements rowSink.
func (p prefixed) add(key, value []byte) { p.clearing.add(key[p.skip:], value) }

// clearing decides how to delete the rows that the engine has of the object, or will have when all earlier commits
// are durable. Rows that cannot be read are deleted by a range deletion, which reads nothing.
func (r *Range) clearing() (clearing, error) {
	if err := r.store.refusal(); err != nil {
		return clearing{}, err
	}
	// Memory first, as in every read: a layer that leaves memory in between is readable in the engine by then.
	c, below := r.clearingInMemory()
	if !below || c.all {
		return c, r.estimate(&c)
	}
	cur, err := r.store.cursor(r.store.db, r.prefix, prefixEnd(r.prefix))
	if err == nil {
		sink := prefixed{&c, len(r.prefix)}
		more, stepErr := cur.step(engineIterator.First, sink)
		for more && stepErr == nil && !c.all {
			more, stepErr = cur.step(nextRow, sink)
		}
		if err = cur.close(); stepErr != nil {
			err = stepErr
		}
	}
	if refusal := r.store.refusal(); refusal != nil {
		return clearing{}, refusal
	}
	if err != nil {
		c.keys, c.all = nil, true
	}
	return c, r.estimate(&c)
}

// clearingInMemory returns the keys of undurable rows, and those of the durable layer if it hides the engine's
// rows. below reports that the engine may have further rows.
func (r *Range) clearingInMemory() (c clearing, below bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.at, below = r.commits, true
	for _, g := range [...]*layer{r.filling, r.inflight, r.lastDurable} {
		if g == nil || !below || g == r.lastDurable && !g.cleared {
			continue
		}
		for i := range g.set.rows {
			if w := &g.set.rows[i]; !w.deleted && !c.all {
				c.add(w.key, w.value)
			}
		}
		if below = !g.cleared; below || g != r.filling {
			continue
		}
		// The new DeleteAll replaces this one in filling, and deletes its keys as well.
		if c.all = c.all || g.clearing.all; !c.all {
			c.keys = append(c.keys, g.clearing.keys...)
			c.n += g.clearing.n
		}
		c.dead += g.clearing.dead
	}
	return c, below
}

// estimate sets the weight of a range deletion from the engine's estimate of the object's disk usage.
func (r *Range) estimate(c *clearing) error {
	if !c.all {
		return nil
	}
	if !r.store.engine.acquire() {
		return r.store.refusal()
	}
	defer r.store.engine.release()
	// The result only affects a guess, so an error is ignored.
	if size, err := r.store.db.EstimateDiskUsage(r.prefix, prefixEnd(r.prefix)); err == nil {
		c.dead = max(c.dead, int64(size))
	}
	return nil
}

// checkClearingLocked replaces the keys of a DeleteAll by a range deletion if a commit came after they were read.
func (r *Range) checkClearingLocked(c *clearing) {
	invariants.Held(&r.mu)
	if c.at != r.commits {
		c.keys, c.n, c.all = nil, 0, true
	}
}

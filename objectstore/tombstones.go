package objectstore

import (
	"errors"
	"time"
)

// tombstoneWeight is the weight of a deletion, in addition to the bytes that it is known to hide.
const tombstoneWeight = 2 << 10

// flushDead makes the engine flush the memtable when the deletions since the last flush by flushDead weigh as much as a
// memtable may hold. Until then deleted rows keep the disk, and reads walk over them and over their deletions: over the fired
// alarms before the next one, and the deleted objects of a class. The engine alone would flush a full memtable, which
// holds hundreds of thousands of deletions, and a quiet host does not fill it in days. The flush bounds the walks
// independent of the store's age; the engine compacts the rest away. flushDead returns false if the store has failed.
func (c *committer) flushDead() bool {
	c.dead += c.rec.dead
	if c.dead < c.s.opts.MemTable {
		return true
	}
	c.dead = 0
	defer c.s.exitOnPanic()
	c.s.recordSince.Store(int64(time.Since(c.s.opened)) + 1) // AsyncFlush closes the previous log file: a disk that stalls is noticed
	defer c.s.recordSince.Store(0)
	_, err := c.s.db.AsyncFlush()
	if err = errors.Join(err, c.s.background.failure()); err != nil {
		c.s.fail(err)
		return false
	}
	return true
}

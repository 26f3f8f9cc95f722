package objectstore

import "time"

// tombstoneWeight is what a deletion weighs besides the bytes that it is known to hide.
const tombstoneWeight = 2 << 10

// flushDead has the memtable flushed when the deletions since the last time weigh as much as
// it may hold. Until then what was deleted keeps the disk, and reads walk over it and over
// its deletion: over the fired alarms before the next one, and the deleted objects of a
// class. The engine alone would flush a full memtable, which holds hundreds of thousands of
// deletions and which a quiet host does not fill in days. So reads walk over no more than so
// many, however old the store; what the flush leaves of them the engine compacts away. It
// returns false if the store has failed.
func (c *committer) flushDead() bool {
	c.dead += c.rec.dead
	if c.dead < c.s.opts.MemTable {
		return true
	}
	c.dead = 0
	defer c.s.dieOfPanic()
	c.s.recordSince.Store(int64(time.Since(c.s.opened)) + 1) // the log before is closed: a disk that stalls is noticed
	defer c.s.recordSince.Store(0)
	if _, err := c.s.db.AsyncFlush(); err != nil {
		c.s.fail(err)
		return false
	}
	return true
}

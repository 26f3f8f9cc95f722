package objectstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost/internal/frame"
)

// batchHeader is the size of the header of an engine batch, which its operations follow.
const batchHeader = 12

// frameKey is the key of the frame of a record. Frames sort by their numbers.
func frameKey(number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{keyFrame}, number)
}

// frameBounds are the bounds of all frames and of the frame limit.
func frameBounds() (lower, upper []byte) { return []byte{keyFrame}, []byte{keyLimit, 0} }

// framer makes the frames of records. Only the committer uses it.
type framer struct {
	ship *shipper
	at   frame.Position // of the newest record that is durable
	next frame.Position // of the record in flight
	size int64          // of the frame in flight
	// deleted is the last record whose frame was deleted, and hidden the bytes of shipped frames that were.
	deleted uint64
	hidden  int64
	// limit is the number of the frame limit; zero if the next record makes the first one.
	limit uint64
	// fresh is set until the first frame of a history is made: frames of another fork are deleted with it.
	fresh bool
}

// loadFrames finds the place in the history where the records of this host begin. last is the record of the last host.
//
// A host that does not ship makes no frames. Its records are then missing between those of the hosts before and after
// it: the newest frame is of another generation than the last host. The numbers skip one there, so the shipper finds a
// gap and makes a new base. A damaged newest frame leaves such a gap, too: see frameLimit.
func (c *committer) loadFrames(last hostRecord) error {
	s := c.s
	id, err := ulid.ParseStrict(s.identity.Store)
	if err != nil {
		return fmt.Errorf("dohost: id of a store: %w", err)
	}
	c.frames = &framer{ship: s.ship, at: frame.Position{Store: id, Fork: s.identity.Fork}}
	limit, limited, err := s.readFrameLimit()
	if err != nil {
		return err
	}
	if limited && limit.fork == s.identity.Fork {
		c.frames.limit = limit.number
	}
	newest, ok, err := s.newestFrame(s.db)
	switch {
	case damagedRecord(err) && c.frames.limit > 0:
		c.skipDamaged(err)
	case damagedRecord(err) && limited: // of another fork, as the limit
		c.frames.fresh = true
		return nil
	case err != nil:
		return fmt.Errorf("reading the newest frame; a host that does not ship does not need it: %w", err)
	case !ok || newest.Store != id || newest.Fork != s.identity.Fork:
		c.frames.fresh = ok
		return nil
	default:
		c.frames.at = frame.After(&newest)
		s.ship.made = newest.Number
		if newest.Generation != last.generation {
			c.frames.at.Number, c.frames.at.Sum = newest.Number+1, frame.Sum{}
		}
	}
	lower, upper := frameBounds()
	used, err := s.db.EstimateDiskUsage(lower, upper)
	s.ship.bytes = int64(used)
	return err
}

// newestFrame returns the frame of the newest record that has one.
func (s *Store) newestFrame(on engineReader) (f frame.Frame, ok bool, err error) {
	c, err := s.cursor(on, []byte{keyFrame}, []byte{keyFrame + 1})
	if err != nil {
		return f, false, err
	}
	w := &walker{cursor: c}
	ok, err = w.step(engineIterator.Last, w)
	if err = errors.Join(err, c.close()); !ok || err != nil {
		return f, false, err
	}
	f, rest, err := frame.Decode(w.value)
	if err != nil || len(rest) > 0 || string(frameKey(f.Number)) != string(w.key) {
		return f, false, fmt.Errorf("%w: frame with the key %q", ErrFormat, w.key)
	}
	return f, true, nil
}

// add adds the frame of a record to its batch, and deletes frames that are not needed any more: those that the archive
// has, or all if more bytes than Shipping.Backlog wait. The newest frame always stays.
func (m *framer) add(rec *record, generation uint64) error {
	n := len(rec.batch.Repr()) - batchHeader
	h := m.at.Header(generation, time.Now().UnixNano())
	through, hidden, drop := m.ship.deletable(h.Number)
	if m.fresh {
		if err := dropFrames(rec); err != nil {
			return err
		}
	}
	if through > m.deleted {
		rec.dead += tombstoneWeight + max(0, hidden-m.hidden)
		// The ranges of a host do not overlap: the engine splits overlapping ones at each bound of another, so the memory of
		// a read would grow with the square of their number in a memtable. The first one has the frames of earlier hosts.
		if err := pebbleBatch(rec).DeleteRange(frameKey(m.deleted+1), frameKey(through+1), nil); err != nil {
			return err
		}
		m.deleted, m.hidden = through, hidden
	}
	if drop {
		m.ship.s.opts.Logger.Error("shipping lags too far, a new base is needed", "before", h.Number, "limit", m.ship.opts.Backlog)
	}
	if err := m.reserve(rec, h.Fork, h.Number); err != nil {
		return err
	}
	m.size = int64(frame.Size(n))
	d := pebbleBatch(rec).SetDeferred(1+8, int(m.size))
	copy(d.Key, frameKey(h.Number))
	sum := frame.Encode(d.Value, &h, rec.batch.Repr()[batchHeader:batchHeader+n])
	m.next = frame.Position{Store: h.Store, Fork: h.Fork, Generation: h.Generation, Number: h.Number, Time: h.Time, Sum: sum}
	return d.Finish()
}

// addFrame makes the frame of a record that is complete otherwise, if the store has a shared log or ships. The first record of a
// backup deletes the rows that name the history of the other fork.
func (c *committer) addFrame(rec *record) error {
	if c.copied {
		c.copied = false
		if err := errors.Join(dropApplied(rec), dropFrames(rec)); err != nil {
			return err
		}
	}
	switch {
	case c.chain != nil:
		return c.chain.add(rec, c.host.generation)
	case c.frames != nil:
		return c.frames.add(rec, c.host.generation)
	}
	return nil
}

// durable is called when the record in flight is durable.
func (m *framer) durable() {
	if m == nil {
		return
	}
	m.at, m.fresh = m.next, false
	m.ship.recordDurable(&m.at, m.size)
}

// dropFrames deletes all frames, in the first record after a fork was drawn: they are of another history.
func dropFrames(rec *record) error {
	lower, upper := frameBounds()
	return pebbleBatch(rec).DeleteRange(lower, upper, nil)
}

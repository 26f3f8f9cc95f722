package objectstore

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// frameLimitStep is how many numbers a limit reserves after its own record. After a damaged frame the store skips up to one number
// more than that, and Ship.Records counts the skipped numbers until the next base is begun.
const frameLimitStep = 1 << 10

// frameLimitKey is the key of the frame limit. It is next to the host record, without which a store does not open.
var frameLimitKey = []byte{keyLimit}

// frameLimit is a number that no frame of a fork exceeds. The record of the first frame beyond it has the next limit. So the number of
// the newest frame has a bound if the frame cannot be read: a number beyond the limit was never given to a record.
type frameLimit struct {
	fork   uint32
	number uint64
}

func (l frameLimit) encode() []byte {
	b := binary.BigEndian.AppendUint32([]byte{limitVersion}, l.fork)
	return binary.BigEndian.AppendUint64(b, l.number)
}

func decodeFrameLimit(b []byte) (frameLimit, error) {
	if err := checkVersion("limit of frames", b, limitVersion, 13); err != nil {
		return frameLimit{}, err
	}
	return frameLimit{binary.BigEndian.Uint32(b[1:]), binary.BigEndian.Uint64(b[5:])}, nil
}

// readFrameLimit reads the limit. ok is false if there is none, or an unreadable one, which the first record replaces.
func (s *Store) readFrameLimit() (l frameLimit, ok bool, err error) {
	v, ok, err := s.appendGet(nil, s.db, frameLimitKey)
	if ok && err == nil {
		l, err = decodeFrameLimit(v)
	}
	if err != nil && !damagedRecord(err) {
		return l, false, fmt.Errorf("reading the limit of frames: %w", err)
	}
	return l, ok && err == nil, nil
}

// reserve adds a limit to a record whose frame has a number beyond the present one.
func (m *framer) reserve(rec *record, fork uint32, number uint64) error {
	if number <= m.limit {
		return nil
	}
	m.limit = number + frameLimitStep
	return pebbleBatch(rec).Set(frameLimitKey, frameLimit{fork, m.limit}.encode(), nil)
}

// skipDamaged continues after the newest frame when it cannot be read because of cause. The next record gets a number that is
// beyond the limit and does not follow it, so the shipper finds a gap and makes a new base.
func (c *committer) skipDamaged(cause error) {
	s, limit := c.s, c.frames.limit
	if !errors.Is(cause, ErrDamaged) { // the engine has not counted it
		s.damages.add(Damage{Key: string([]byte{keyFrame}), Detail: cause.Error()})
	}
	c.frames.at.Number, s.ship.made, s.ship.failures = limit+1, limit, 1
	s.opts.Logger.Error("the newest frame of a record cannot be read, a new base is needed", "err", cause, "next", limit+2)
}

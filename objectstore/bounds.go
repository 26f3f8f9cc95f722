package objectstore

import (
	"bytes"
	"errors"
)

// Bounds selects rows of one space. An empty bound is no bound. A row must be within all of them; if no key can be, Scan
// does no I/O. Reverse does not swap Start and End. Start together with After, and a negative Limit, are errors.
type Bounds struct {
	Space   Space
	Start   []byte // first key, inclusive
	After   []byte // keys after this one
	End     []byte // keys before this one
	Prefix  []byte // keys that begin so
	Reverse bool   // from the last to the first
	Limit   int    // the largest number of rows; zero means all
}

var errBounds = errors.New("dohost: bounds have both Start and After, or a negative Limit")

// span returns the keys of rows within a range, the space included, that b
// selects: from lower to before upper. ok is false if there are none.
func (b *Bounds) span() (lower, upper []byte, ok bool, err error) {
	if len(b.Start) > 0 && len(b.After) > 0 || b.Limit < 0 {
		return nil, nil, false, errBounds
	}
	space := []byte{byte(b.Space)}
	lower = append(space[:1:1], b.Prefix...)
	upper = prefixEnd(lower)
	if len(b.Start) > 0 {
		lower = later(lower, append(space[:1:1], b.Start...))
	}
	if len(b.After) > 0 {
		// The key after a key is that key and a zero byte.
		lower = later(lower, append(append(space[:1:1], b.After...), 0))
	}
	if len(b.End) > 0 {
		if end := append(space[:1:1], b.End...); bytes.Compare(end, upper) < 0 {
			upper = end
		}
	}
	return lower, upper, bytes.Compare(lower, upper) < 0, nil
}

func later(a, b []byte) []byte {
	if bytes.Compare(a, b) < 0 {
		return b
	}
	return a
}

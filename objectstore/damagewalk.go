package objectstore

import (
	"bytes"
	"errors"
	"math/big"
)

// searchBytes is how many bytes of a key, after those that two keys have in common,
// the search for the end of damage distinguishes.
const searchBytes = 24

// move steps the walker. If it meets damage and onDamage is set, it reports the
// damage and steps to the first row after it that can be read.
func (w *walker) move(move func(engineIterator) bool) (bool, error) {
	ok, err := w.step(move, w)
	var damage *DamageError
	if w.onDamage == nil || !errors.As(err, &damage) {
		return ok, err
	}
	after := bytes.Clone(w.key)
	if len(after) == 0 {
		after = w.lower
	}
	if len(after) == 0 {
		after = []byte{0}
	}
	ok, err = w.pastDamage(after)
	if err == nil {
		var next []byte
		if ok {
			next = w.key
		}
		w.onDamage(damage, after, next)
	}
	return ok, err
}

// pastDamage moves to the first row after a damaged block, which lies after the key after. The engine does not report
// which keys a damaged block holds. But a seek fails if it ends in the block, and succeeds if it ends after it. So
// the search finds a key that a seek can reach, at growing distances, and bisects the interval before it.
func (w *walker) pastDamage(after []byte) (bool, error) {
	bad := append(bytes.Clone(after), 0)
	good, err := w.readableAfter(&bad)
	if err != nil {
		return false, err
	}
	n := commonPrefix(bad, good)
	low, high := number(bad[n:]), number(good[n:])
	for {
		middle := new(big.Int).Add(low, high)
		middle.Rsh(middle, 1)
		if middle.Cmp(low) == 0 {
			if bytes.Equal(good, w.upper) {
				return false, nil // a seek to the bound would need the block if the block extends beyond it
			}
			return w.seek(good)
		}
		at := append(bytes.Clone(good[:n]), middle.FillBytes(make([]byte, searchBytes))...)
		switch _, err := w.seek(at); {
		case err == nil:
			high, good = middle, at
		case errors.Is(err, ErrDamaged):
			low = middle
		default:
			return false, err
		}
	}
}

// readableAfter returns a key that a seek can reach; it may be the walker's upper bound. It moves bad to the last key
// that a seek cannot reach.
func (w *walker) readableAfter(bad *[]byte) ([]byte, error) {
	base := *bad
	for n := len(base); n > 0; n-- {
		for c := int(base[n-1]) + 1; c <= 0xff; c++ {
			at := append(bytes.Clone(base[:n-1]), byte(c))
			if w.upper != nil && bytes.Compare(at, w.upper) >= 0 {
				return w.upper, nil
			}
			switch _, err := w.seek(at); {
			case err == nil:
				return at, nil
			case !errors.Is(err, ErrDamaged):
				return nil, err
			}
			*bad = at
			if n > 1 {
				break // the next distance; the first byte is the kind of key, which has few values
			}
		}
	}
	return []byte{0xff}, nil
}

func commonPrefix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// number returns the first bytes of a key as a number; numbers order as keys do.
func number(key []byte) *big.Int {
	var b [searchBytes]byte
	copy(b[:], key)
	return new(big.Int).SetBytes(b[:])
}

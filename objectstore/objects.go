package objectstore

import (
	"bytes"
	"errors"
	"iter"
)

// walker is a cursor over a snapshot or the database, with copies of the current row.
type walker struct {
	*cursor
	key, value []byte
	upper      []byte
	// onDamage, if it is set, makes the walker skip rows that cannot be read because
	// of a damaged block, and is called with the last key before them and the first
	// one after them; next is nil if there is none.
	onDamage func(damage *DamageError, after, next []byte)
}

func (w *walker) add(key, value []byte) {
	w.key = append(w.key[:0], key...)
	w.value = append(w.value[:0], value...)
}

func (w *walker) first() (bool, error) { return w.move(engineIterator.First) }

func (w *walker) next() (bool, error) { return w.move(nextRow) }

func (w *walker) seek(key []byte) (bool, error) {
	seek := func(it engineIterator) bool { return it.SeekGE(key) }
	ok, err := w.step(seek, w)
	if errors.Is(err, ErrDamaged) {
		// It may be the error of the seek before this one: the engine returns that again if this
		// one leaves the table. A second seek to the same key returns its own.
		ok, err = w.step(seek, w)
	}
	return ok, err
}

func (sn *Snapshot) walk(lower, upper []byte) (*walker, error) {
	if err := sn.gone(); err != nil {
		return nil, err
	}
	c, err := sn.store.cursor(sn.at, lower, upper)
	if err != nil {
		return nil, err
	}
	return &walker{cursor: c, upper: upper}, nil
}

// Classes yields the classes that have objects, in order. A class with no other object than one half imported is among them.
// It seeks once per class. The iteration may continue after ErrDamaged.
func (sn *Snapshot) Classes() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for id, err := range sn.skip([]byte{keyObject}, func(id ID) []byte {
			return append(append([]byte{keyObject}, id.Class...), nameEnd+1)
		}) {
			if !yield(id.Class, err) {
				return
			}
		}
	}
}

// Objects yields the objects of a class, in order of their names. It skips names up to after. It seeks once per
// object, independent of its number of rows. Objects half imported are left out. The iteration may continue after
// ErrDamaged.
func (sn *Snapshot) Objects(class, after string) iter.Seq2[ID, error] {
	prefix := append(append([]byte{keyObject}, class...), nameEnd)
	if after != "" {
		prefix = pastObject(ID{Class: class, Name: after})
	}
	return func(yield func(ID, error) bool) {
		for id, err := range sn.skip(prefix, pastObject) {
			if err == nil && id.Class != class {
				return
			}
			if err == nil && sn.store.Importing(id) {
				continue
			}
			if !yield(id, err) {
				return
			}
		}
	}
}

// pastObject is the first key after all keys of an object.
func pastObject(id ID) []byte {
	b := appendObject(nil, id)
	b[len(b)-1] = nameEnd + 1
	return b
}

// skip yields the object of the first key from start, then that of the first key from past(object), and so on. After
// an error that is ErrDamaged it continues with the first object after the damaged block.
func (sn *Snapshot) skip(start []byte, past func(ID) []byte) iter.Seq2[ID, error] {
	return func(yield func(ID, error) bool) {
		w, err := sn.walk(start, []byte{keyObject + 1})
		if err != nil {
			yield(ID{}, err)
			return
		}
		defer w.close()
		for {
			ok, err := w.seek(start)
			if errors.Is(err, ErrDamaged) {
				if !yield(ID{}, err) {
					return
				}
				ok, err = w.pastDamage(start)
			}
			if err != nil {
				yield(ID{}, err)
				return
			}
			if !ok {
				return
			}
			id, _, ok := splitID(w.key[1:])
			if !ok {
				// Check names it. The iteration continues after it.
				start = append(bytes.Clone(w.key), 0)
				continue
			}
			if !yield(id, nil) {
				return
			}
			start = past(id)
		}
	}
}

// Exists reports whether the object has a row or an alarm, and is not half imported.
func (sn *Snapshot) Exists(id ID) (bool, error) {
	if sn.store.Importing(id) {
		return false, nil
	}
	return sn.hasRows(id)
}

func (sn *Snapshot) hasRows(id ID) (bool, error) {
	w, err := sn.walk(appendObject(nil, id), pastObject(id))
	if err != nil {
		return false, err
	}
	defer w.close()
	return w.first()
}

// HasRows reports whether the database has a row or an alarm of the object, and the object is not half imported. It needs no
// snapshot, so it does not wait for the record in flight. It may count rows of that record, which a power cut could still undo.
func (s *Store) HasRows(id ID) (bool, error) {
	if err := s.refusal(); err != nil || s.Importing(id) {
		return false, err
	}
	upper := pastObject(id)
	c, err := s.cursor(s.db, appendObject(nil, id), upper)
	if err != nil {
		return false, err
	}
	w := &walker{cursor: c, upper: upper}
	defer w.close()
	return w.first()
}

// Slot returns the object's alarm.
func (sn *Snapshot) Slot(id ID) (Slot, bool, error) {
	v, ok, err := sn.get(slotKey(id))
	if !ok || err != nil {
		return Slot{}, false, err
	}
	s, err := decodeSlot(v)
	return s, err == nil, err
}

package objectstore

import "sync"

// Importing reports whether an import of the object has begun and not been completed. Such an object has part of its
// rows and must not be run. No I/O.
func (s *Store) Importing(id ID) bool { return s.importing.has(id) }

// importSet has the objects with an import that runs, or that was interrupted by the end of a host.
type importSet struct {
	mu  sync.Mutex
	ids map[ID]bool // whether an import is running
}

// load reads the marks of earlier hosts. It skips marks in a damaged block: the block may have rows of objects and no
// mark, and must not prevent Open. No import begins or ends while it runs: it is called before the store is open, and for
// a standby or an archived state, which have no imports. After an error the set has the marks that were read.
func (m *importSet) load(s *Store) error {
	ids := map[ID]bool{}
	err := readImportMarks(s, ids)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ids = ids
	return err
}

// readImportMarks adds the objects that have a mark.
func readImportMarks(s *Store, ids map[ID]bool) error {
	lower, upper := []byte{keyImporting}, []byte{keyImporting + 1}
	c, err := s.cursor(s.db, lower, upper)
	if err != nil {
		return err
	}
	defer c.close()
	w := &walker{cursor: c, upper: upper, onDamage: func(*DamageError, []byte, []byte) {}}
	ok, err := w.first()
	for ; ok; ok, err = w.next() {
		if id, _, ok := splitID(w.key[1:]); ok {
			ids[id] = false
		}
	}
	return err
}

func (m *importSet) has(id ID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.ids[id]
	return ok
}

// begin claims an object for an import, unless one is running. remains reports whether an earlier one left rows.
func (m *importSet) begin(id ID) (remains, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	running, remains := m.ids[id]
	if running {
		return false, false
	}
	m.ids[id] = true
	return remains, true
}

func (m *importSet) end(id ID, remains bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if remains {
		m.ids[id] = false
		return
	}
	delete(m.ids, id)
}

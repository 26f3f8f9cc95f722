package objectstore

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// Importing says whether an import of the object has begun and not been
// completed. Such an object has part of its rows and must not be run. No I/O.
func (s *Store) Importing(id ID) bool { return s.importing.has(id) }

// importSet is the objects that are being imported, or were when a host died.
type importSet struct {
	mu  sync.Mutex
	ids map[ID]bool // whether an import is running
}

// load reads the marks that earlier hosts left.
func (m *importSet) load(s *Store) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ids = make(map[ID]bool)
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: []byte{keyImporting},
		UpperBound: []byte{keyImporting + 1},
	})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		if id, _, ok := splitID(it.Key()[1:]); ok {
			m.ids[id] = false
		}
	}
	if err := it.Close(); err != nil {
		return readError(nil, err)
	}
	return nil
}

func (m *importSet) has(id ID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.ids[id]
	return ok
}

// begin claims an object for an import, unless one is running. remains says that
// an earlier one left rows.
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

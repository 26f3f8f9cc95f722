package dohost

import (
	"context"

	"github.com/dohost/dohost/objectstore"
)

// Bookmark names a moment of a store's history: the state after a record. Bookmarks of one store compare, as strings, in the
// order of the history. A store made from a backup or by a restore has its own history, and refuses bookmarks of other
// histories.
type Bookmark = objectstore.Bookmark

// Bookmark returns the bookmark of the newest durable record. Error: [ErrMisuse] without [Options].Ship.
func (h *Host) Bookmark() (Bookmark, error) { return h.rt.Store().Bookmark() }

// Bookmark commits the writes of the event and, when they are durable, returns a bookmark. The moment includes everything
// that the object has committed before, and nothing that it writes later. Bookmark holds the turn until it returns. A
// moment before the first base of the archive, or in a gap of the archive, cannot be restored.
//
// Errors: [ErrMisuse] in a [Transaction], and without [Options].Ship.
func (s *State) Bookmark(ctx context.Context) (Bookmark, error) { return s.rt().Bookmark(ctx) }

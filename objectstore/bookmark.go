package objectstore

import (
	"fmt"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost/internal/errkind"
)

// Bookmark names a moment of the history of a store: the state after a record. Bookmarks of one history compare, as strings, in
// the order of their records. The fields are the number of the record, the fork and the store.
//
//	0000000000004711-5f0c3a91-01ARZ3NDEKTSV4RRFFQ69G5FAV
type Bookmark string

// Errors of bookmarks.
var (
	// ErrBookmark reports a text that is no bookmark.
	ErrBookmark = errkind.New(errkind.ErrMisuse, "not a bookmark")
	// ErrForeignBookmark reports a bookmark of another store, or of another copy of this one.
	ErrForeignBookmark = errkind.New(errkind.ErrConflict, "the bookmark is of another history")
	// ErrNotShipping reports that the store ships no records: there are no bookmarks, and no moment can be restored.
	ErrNotShipping = errkind.New(errkind.ErrMisuse, "the host ships no records to an archive")
)

func bookmarkOf(of Identity, record uint64) Bookmark {
	return Bookmark(fmt.Sprintf("%016d-%08x-%s", record, of.Fork, of.Store))
}

// Parse returns the history and the record that the bookmark names. Error: ErrBookmark.
func (b Bookmark) Parse() (of Identity, record uint64, err error) {
	_, err = fmt.Sscanf(string(b), "%d-%x-%s", &record, &of.Fork, &of.Store)
	if err == nil {
		_, err = ulid.ParseStrict(of.Store)
	}
	if err != nil || record == 0 || of.Fork == 0 || bookmarkOf(of, record) != b {
		return Identity{}, 0, fmt.Errorf("%w: %q", ErrBookmark, string(b))
	}
	return of, record, nil
}

// Bookmark returns the bookmark of the newest durable record. Everything that is durable is in that record or an earlier one; a
// write that is committed later is not. Error: ErrNotShipping.
func (s *Store) Bookmark() (Bookmark, error) {
	if s.ship == nil {
		return "", ErrNotShipping
	}
	return bookmarkOf(s.identity, s.ship.stats().Record), nil
}

// ofHistory returns an error if a bookmark is of another history than this one.
func (b Bookmark) ofHistory(of Identity) error {
	named, _, err := b.Parse()
	if err == nil && named != of {
		err = fmt.Errorf("%w: it is of %v, want %v", ErrForeignBookmark, named, of)
	}
	return err
}

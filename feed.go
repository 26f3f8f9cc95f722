package dohost

import (
	"context"
	"time"

	"github.com/dohost/dohost/objectstore"
)

// Feed is a log of the changes of the collections that name it, in order. Every insert, update and delete of a row is
// an entry with the next offset, written together with the row. Like a [Collection], a Feed is a description that
// serves all objects.
//
//	var session = dohost.Feed{Name: "session", Keep: 1000}
//
// A reader remembers a [Position]. To list rows and then follow their changes, get [Feed.End] and list the rows,
// without an Await in between, and then read from that position:
//
//	for {
//		changes, err := session.Read(ctx, store, at, 0)
//		...
//		if err := session.Wait(ctx, store, at); err != nil {
//			return err
//		}
//	}
//
// Its methods need a ctx that holds the turn, like the methods of a Collection.
type Feed struct {
	// Name is 1 to 128 bytes, like the name of a collection.
	Name string
	// Values stores each row's value with its entry. Without Values, reading an entry returns the row's current
	// value, and a write costs half as much.
	Values bool
	// Before also stores the row's value before the change with the entry. Together with Values, the two values of a
	// row may encode to almost 2 MiB. [Collection.Watch] needs both.
	Before bool
	// Keep is how many entries are kept. Zero keeps all.
	Keep int
	// MaxAge lets an append remove entries that are older than the new entry by more than this. Zero keeps entries of any
	// age.
	//
	// Each append enforces both limits: it removes at most the two oldest entries, and never the last entry.
	MaxAge time.Duration
}

func (f *Feed) bytes() objectstore.Feed {
	if f == nil {
		return objectstore.Feed{}
	}
	return objectstore.Feed(*f)
}

// Op is the kind of a change of a row.
type Op = objectstore.Op

// The three changes of a row.
const (
	OpInsert = objectstore.OpInsert
	OpUpdate = objectstore.OpUpdate
	OpDelete = objectstore.OpDelete
)

// Position is a place in a feed: after the entry at Offset, which is 0 for the beginning, in the
// log named Log. It is a plain value: a client may store its two fields in any form, such as the
// JSON {"Log":"01J0C1WSC8TZQ0QH1R6Z8B4M7K","Offset":12}, and send them back.
//
// The name of the log identifies the history. It changes with the first entry after a DeleteAll, after an import
// of the object, and after a restored backup was opened. A reader gets a [*FeedError] with Reset if the feed does
// not have the reader's history, even if the feed has become as long as that history. A reader that was not ahead
// of the import or the backup continues. A position without Log is valid in any log: its reader notices a change
// of the history only if the feed ends before its Offset, or if a DeleteAll occurs while [Feed.Wait] waits.
type Position = objectstore.Position

// Change is an entry of a [Feed].
type Change struct {
	Position   Position // after the entry
	Op         Op
	Collection string
	Key        string
	Version    uint64    // of the row, after an insert or update; the last one of a deleted row
	At         time.Time // by the host's clock, in milliseconds
	// Value is the row, encoded: [Collection.Value] decodes it. It is nil after a delete, and if a
	// feed without Values finds that the row is gone.
	Value []byte
	// Before is the row before the change, encoded: [Collection.ValueBefore] decodes it. It is nil after an insert, and
	// for an entry of a feed without Before.
	Before []byte
}

// FeedError reports that a feed cannot be read from a position, and has the first position that can be read. It is
// [ErrNotFound]. The reader should copy the rows again, and read the feed from First. Reset is set if the feed does not
// have the reader's history, and not if only the entries after the position were trimmed.
type FeedError = objectstore.FeedError

// readLimit is the default limit of Read.
const readLimit = 100

// Read returns the entries after a position, at most limit; zero means 100. Durable entries come first, then the
// entries that this event has written since its last Await. Read stops before an undurable entry of another event, so a
// reader never sees an entry that a crash could undo.
//
// Errors: a [*FeedError].
func (f *Feed) Read(ctx context.Context, s *Storage, after Position, limit int) ([]Change, error) {
	if limit <= 0 {
		limit = readLimit
	}
	found, err := s.rt().ReadFeed(ctx, f.Name, after, limit, 0)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	_, end, err := s.rt().FeedEnds(ctx, f.Name)
	if err != nil {
		return nil, err
	}
	changes := make([]Change, len(found))
	for i, c := range found {
		changes[i] = Change{
			Position: Position{Log: end.Log, Offset: c.Offset},
			Op:       c.Op, Collection: c.Collection, Key: string(c.Key), Version: c.Version, At: c.At, Value: c.Value, Before: c.Before,
		}
	}
	return changes, nil
}

// Wait returns when [Feed.Read] has an entry after a position. Until then it gives up the
// turn, as an [Await] does. If ctx has ended, Wait returns the cause of ctx even if there
// is an entry. A DeleteAll while Wait waits is a [*FeedError] with Reset.
//
// Errors: a [*FeedError]; [ErrOverloaded] if the object has 256 watches and waiting readers, or half of Options.MaxEvents;
// [ErrClosed] when the host begins to close; the ctx's cause; the errors of Await.
func (f *Feed) Wait(ctx context.Context, s *Storage, after Position) error {
	ctx, end, err := s.rt().BeginWatch(ctx)
	if err != nil {
		return err
	}
	defer end()
	_, err = s.rt().WaitFeed(ctx, f.Name, after)
	return err
}

// Start returns the position before the first existing entry.
func (f *Feed) Start(ctx context.Context, s *Storage) (Position, error) {
	start, _, err := s.rt().FeedEnds(ctx, f.Name)
	return start, err
}

// End returns the position after the last entry, durable or not.
func (f *Feed) End(ctx context.Context, s *Storage) (Position, error) {
	_, end, err := s.rt().FeedEnds(ctx, f.Name)
	return end, err
}

// Value decodes the row of an entry. ok is false if the entry is another
// collection's, or has no value.
func (c *Collection[T]) Value(ch Change) (v T, ok bool, err error) {
	if ch.Collection != c.Name || ch.Value == nil {
		return v, false, nil
	}
	v, err = c.decode(ch.Key, ch.Value)
	return v, err == nil, err
}

// ValueBefore decodes the row as it was before the change. ok is false if the entry is another collection's, or does
// not have that value.
func (c *Collection[T]) ValueBefore(ch Change) (v T, ok bool, err error) {
	if ch.Collection != c.Name || ch.Before == nil {
		return v, false, nil
	}
	v, err = c.decode(ch.Key, ch.Before)
	return v, err == nil, err
}

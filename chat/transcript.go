package chat

import (
	"cmp"
	"context"
	"iter"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat/uimessage"
)

// messageRow is a row of the transcript.
type messageRow = uimessage.Stored

// placeStep is the gap between places.
const placeStep = 1 << 20

// transcript is the collection of messages. The extentNote counts them, and has a floor: messages below it are
// deleted, though their rows may still exist. So one write deletes any number of messages. Only sweep sees the
// remaining rows. A change of a message that a summary covers deletes the summary: see summaryRow.
type transcript struct{ rows dohost.Collection[messageRow] }

var messages = transcript{dohost.Collection[messageRow]{
	Name: "dohost.chat.messages",
	Key:  func(r messageRow) string { return r.ID },
	Indexes: []dohost.Index[messageRow]{
		{Name: "place", Of: func(r messageRow) dohost.Key { return dohost.KeyOf(r.Place) }},
		{Name: "system", Of: func(r messageRow) dohost.Key { return partialKey(r.Role == RoleSystem, dohost.KeyOf(r.Place)) }},
	},
}}

func extent(ctx context.Context, s *dohost.Storage) (noteRow, error) {
	row, _, err := notes.Get(ctx, s, extentNote)
	row.Value.Name = extentNote
	return row.Value, err
}

// All yields the messages that q selects, by their places: of all messages, or of those in the index that q names. Of the messages
// of the system, the index "system" has the places.
func (t *transcript) All(
	ctx context.Context, s *dohost.Storage, q *dohost.Query[messageRow],
) iter.Seq2[dohost.Row[messageRow], error] {
	return func(yield func(dohost.Row[messageRow], error) bool) {
		x, err := extent(ctx, s)
		if err != nil {
			yield(dohost.Row[messageRow]{}, err)
			return
		}
		all := *q
		all.Index, all.Start = cmp.Or(q.Index, "place"), max(q.Start, dohost.KeyOf(x.Floor))
		t.rows.All(ctx, s, &all)(yield)
	}
}

// Last returns the last of the messages that q selects.
func (t *transcript) Last(
	ctx context.Context, s *dohost.Storage, q dohost.Query[messageRow],
) (last messageRow, ok bool, err error) {
	q.Reverse, q.Limit = true, 1
	for row, err := range t.All(ctx, s, &q) {
		return row.Value, err == nil, err
	}
	return last, false, nil
}

// Get returns the message with an id.
func (t *transcript) Get(ctx context.Context, s *dohost.Storage, id string) (row messageRow, ok bool, err error) {
	found, ok, err := t.rows.Get(ctx, s, id)
	if err != nil || !ok {
		return row, false, err
	}
	x, err := extent(ctx, s)
	if err != nil || found.Value.Place < x.Floor {
		return row, false, err
	}
	return found.Value, true, nil
}

// Put writes a message in place of old, if that has a place. A message below the floor is already deleted, and not
// written.
func (t *transcript) Put(ctx context.Context, s *dohost.Storage, old, row messageRow) (written bool, err error) {
	x, err := extent(ctx, s)
	first := row.Place // of the places that change
	if old.Place != 0 {
		first = min(first, old.Place)
	}
	switch {
	case err != nil || row.Place < x.Floor:
		return false, err
	case old.Place != 0 && len(old.JSON) == len(row.JSON) && first > x.Covered:
		return true, t.rows.Put(ctx, s, row)
	}
	return true, dohost.Transaction(ctx, func(ctx context.Context) error {
		if err := uncover(ctx, s, &x, first); err != nil {
			return err
		}
		if old.Place == 0 {
			x.Count++
		}
		x.Bytes += uint64(len(row.JSON)) - uint64(len(old.JSON))
		if err := notes.Put(ctx, s, x); err != nil {
			return err
		}
		return t.rows.Put(ctx, s, row)
	})
}

// Delete deletes messages and the rows of their calls.
func (t *transcript) Delete(ctx context.Context, s *dohost.Storage, ids ...string) (calls deletedCalls, err error) {
	calls.budget = sweepRows
	if len(ids) == 0 {
		return calls, nil
	}
	err = dohost.Transaction(ctx, func(ctx context.Context) error {
		x, err := extent(ctx, s)
		for _, id := range ids {
			var there bool
			var row messageRow
			if err == nil {
				row, there, err = t.Get(ctx, s, id)
			}
			if err == nil && there {
				x.Count--
				x.Bytes -= uint64(len(row.JSON))
				_, err = t.rows.Delete(ctx, s, id)
			}
			if err == nil && there {
				err = uncover(ctx, s, &x, row.Place)
			}
			if err == nil && there {
				err = calls.delete(ctx, s, &row)
			}
		}
		if err != nil {
			return err
		}
		return notes.Put(ctx, s, x)
	})
	return calls, err
}

// Trim deletes all but the newest keep messages. If it keeps none, it deletes the summaries; otherwise they stay, as the
// memory of the deleted messages. Of more than sweepRows messages it deletes none: sweep does.
func (t *transcript) Trim(ctx context.Context, s *dohost.Storage, keep uint64) (calls deletedCalls, err error) {
	calls.budget = sweepRows
	x, err := extent(ctx, s)
	if err != nil || x.Count <= keep && (keep > 0 || x.Covered == 0) {
		return calls, err
	}
	n := int(x.Count - keep)
	left := n > sweepRows
	if left {
		calls.budget = 0
	}
	err = dohost.Transaction(ctx, func(ctx context.Context) error {
		if keep == 0 {
			if err := uncover(ctx, s, &x, 0); err != nil {
				return err
			}
		}
		for row, err := range t.All(ctx, s, &dohost.Query[messageRow]{Limit: n}) {
			if err != nil {
				return err
			}
			x.Bytes -= uint64(len(row.Value.JSON))
			if left {
				x.Floor = row.Value.Place + 1
			} else if _, err := t.rows.Delete(ctx, s, row.Key); err != nil {
				return err
			} else if err := calls.delete(ctx, s, &row.Value); err != nil {
				return err
			}
		}
		x.Count = keep
		if x.Count == 0 && x.Floor == 0 { // even a full disk has space for a deletion
			_, err := notes.Delete(ctx, s, extentNote)
			return err
		}
		return notes.Put(ctx, s, x)
	})
	return calls, err
}

// End returns the place after all others.
func (t *transcript) End(ctx context.Context, s *dohost.Storage) (uint64, error) {
	last, ok, err := t.Last(ctx, s, dohost.Query[messageRow]{})
	if err != nil || ok {
		return nextPlace(last.Place), err
	}
	x, err := extent(ctx, s)
	return nextPlace(x.Floor), err
}

// nextPlace returns the next place for a message that is not a reply to the one at place.
func nextPlace(place uint64) uint64 { return place + placeStep - place%placeStep }

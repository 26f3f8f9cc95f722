package chat

import (
	"context"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/summary"
)

// summaryRow is a summary of the messages with the places From to To. The From of a row is the place after the To of the row
// before, and the From of the first is 1. So the rows cover all places up to the last To, which the extentNote has as Covered,
// once each.
//
// Invariant: the messages with the places of a row are those that the model has summarised, unchanged, except that [transcript.Trim] may have
// deleted the oldest of them. The transcript, the only writer of messages, keeps it: a write or a deletion at a covered place
// deletes, in the same batch, the summary of the place and those after it (see uncover). So the context of a reply never has a
// deleted text. A row is written only if no such write or deletion has happened since the model got the messages, and Covered is where
// it begins.
//
// There are at most [summary.MaxRows] rows. Before there would be more, one summary of the oldest [summary.MergedRows] rows replaces them, in
// one batch, if they are still the same (see mergeSummaries). The newest rows stay as they are: a change of a message that is not very old
// deletes no summary of the old ones.
type summaryRow struct {
	From, To    uint64
	First, Last string // ids of the first and the last message
	Messages    int    // number
	Content     string // empty if all messages are of the system: the context has those themselves
	Number      int    // of this summary, from 1; that of the last one for a summary of summaries
	Total       int    // messages of this summary and those before
	Created     int64
}

var summaries = dohost.Collection[summaryRow]{
	Name: "dohost.chat.summaries",
	Key:  func(r summaryRow) string { return string(dohost.KeyOf(r.To)) },
}

func (r *summaryRow) summary() *Summary {
	return &Summary{Content: r.Content, First: r.First, Last: r.Last, Messages: r.Messages, Created: time.UnixMilli(r.Created)}
}

// message returns the message of the summary in a context.
func (r *summaryRow) message() Message {
	return Text(fmt.Sprintf("summary_%d", r.To), RoleUser, summary.Mark+r.Content)
}

// uncover deletes the summaries of a place and of the places after it, and changes x accordingly. The caller writes x in the
// same batch.
func uncover(ctx context.Context, s *dohost.Storage, x *noteRow, place uint64) error {
	if place > x.Covered {
		return nil
	}
	for row, err := range summaries.All(ctx, s, &dohost.Query[summaryRow]{Start: dohost.KeyOf(place)}) {
		if err == nil {
			x.Covered = min(x.Covered, row.Value.From-1)
			_, err = summaries.Delete(ctx, s, row.Key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lastSummary returns the last summary; the zero summaryRow if there is none.
func (k *summarizer) lastSummary(ctx context.Context) (last summaryRow, err error) {
	for row, err := range summaries.All(ctx, k.store(), &dohost.Query[summaryRow]{Reverse: true, Limit: 1}) {
		return row.Value, err
	}
	return last, nil
}

// contextBefore returns the context of a reply at a place: see [Reply.Context]. It ignores summaries that cover the place first,
// or a later one: the reply was requested for an older message. If they cover the place of the reply, its end deletes them.
func (k *summarizer) contextBefore(ctx context.Context, first, place uint64, limit int) (all []Message, err error) {
	from := uint64(0)
	for row, err := range summaries.All(ctx, k.store(), nil) {
		if err != nil {
			return nil, err
		}
		s := &row.Value
		if s.To >= first {
			break
		}
		system, err := k.messages.stored(ctx, &dohost.Query[messageRow]{Index: "system", Start: dohost.KeyOf(s.From), End: dohost.KeyOf(s.To + 1)})
		if err != nil {
			return nil, err
		}
		all = append(all, system...)
		if s.Content != "" {
			all = append(all, s.message())
		}
		from = s.To + 1
	}
	window, err := k.messages.newest(ctx, dohost.Query[messageRow]{Start: dohost.KeyOf(from), End: dohost.KeyOf(place), Limit: limit})
	return append(all, window...), err
}

// uncovered returns the number of messages without a summary, up to a limit; a limit of 0 means none.
func (k *summarizer) uncovered(ctx context.Context, limit int) (int, error) {
	x, err := extent(ctx, k.store())
	if err != nil {
		return 0, err
	}
	return messages.rows.Count(ctx, k.store(), &dohost.Query[messageRow]{
		Index: "place", Start: dohost.KeyOf(max(x.Floor, x.Covered+1)), Limit: limit,
	})
}

// putSummary stores a summary of messages, unless they have changed, or a reply between them was requested. MaxMessages may have
// deleted the oldest of them, or all.
func (k *summarizer) putSummary(ctx context.Context, p *summaryPart, content string) (row summaryRow, stored bool, err error) {
	err = dohost.Transaction(ctx, func(ctx context.Context) error {
		x, err := extent(ctx, k.store())
		if err != nil || x.Covered+1 != p.from || p.changed {
			return err
		}
		now, err := k.gather(ctx, p.from, p.to, 0)
		if err != nil {
			return err
		}
		_, left, err := messages.Last(ctx, k.store(), dohost.Query[messageRow]{Start: dohost.KeyOf(p.from), End: dohost.KeyOf(p.to + 1)})
		if err != nil || left && now.to != p.to {
			return err
		}
		last, err := k.lastSummary(ctx)
		if err != nil {
			return err
		}
		row = summaryRow{
			From: p.from, To: p.to, First: p.first, Last: p.last, Messages: p.messages, Content: content,
			Number: last.Number + 1, Total: last.Total + p.messages, Created: time.Now().UnixMilli(),
		}
		x.Covered, stored = row.To, true
		if err := notes.Put(ctx, k.store(), x); err != nil {
			return err
		}
		return summaries.Put(ctx, k.store(), row)
	})
	return row, stored && err == nil, err
}

// putMerged replaces summaries by one of all their messages, unless one was deleted. Only the caller makes summaries, so
// a row that is there is the same row.
func (k *summarizer) putMerged(ctx context.Context, old []summaryRow, content string) (stored bool, err error) {
	err = dohost.Transaction(ctx, func(ctx context.Context) error {
		for _, r := range old {
			if _, ok, err := summaries.Get(ctx, k.store(), summaries.Key(r)); err != nil || !ok {
				return err
			}
		}
		for _, r := range old {
			if _, err := summaries.Delete(ctx, k.store(), summaries.Key(r)); err != nil {
				return err
			}
		}
		row := old[len(old)-1]
		row.From, row.First, row.Messages = old[0].From, old[0].First, 0
		for _, r := range old {
			row.Messages += r.Messages
		}
		row.Content, row.Created, stored = content, time.Now().UnixMilli(), true
		return summaries.Put(ctx, k.store(), row)
	})
	return stored && err == nil, err
}

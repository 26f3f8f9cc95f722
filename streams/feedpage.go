package streams

import (
	"context"
	"encoding/json"

	"github.com/dohost/dohost"
)

// feedPage is a page of a feed. Its fields of page have no Tail.
type feedPage struct {
	page
	next place
}

// page returns the events after a place.
//
// The client has exactly the rows that the place covers, as they were at the position At. A page of changes keeps that: it has the events
// of the covered rows. A page of rows extends it: it reads the rows and the end of the feed with one turn, waits until both are durable,
// and has the changes until that end, for the rows that were covered before, and then the rows.
func (f *feedReader) page(ctx context.Context, from place) (*feedPage, error) {
	if !from.Listed && from.At == (dohost.Position{}) && from.Source == 0 && from.After == "" { // there are no rows that a change concerns
		at, err := f.end(ctx)
		if err != nil {
			return nil, err
		}
		from.At = at.At
	}
	b := &pageBuilder{f: f, at: from}
	full, err := b.changes(ctx, f.o.pageRows)
	if err != nil || full || from.Listed {
		return b.page(from, !full && from.Listed), err
	}
	rows, to, end, err := f.rows(ctx, b.at)
	if err != nil {
		return nil, err
	}
	if err := dohost.AwaitDurable(ctx); err != nil {
		return nil, err
	}
	if full, err = b.until(ctx, end); err != nil || full {
		return b.page(from, false), err
	}
	b.events = append(b.events, rows...)
	to.At = b.at.At
	b.at = to
	return b.page(from, to.Listed), nil
}

// rows lists rows after a place. to is the place after them, and end the end of the feed; durable or not.
func (f *feedReader) rows(ctx context.Context, from place) (rows []json.RawMessage, to place, end dohost.Position, err error) {
	if end, err = f.feed().End(ctx, f.store); err != nil {
		return nil, to, end, err
	}
	rows, last, more, err := f.sources[from.Source].list(ctx, f.store, from.After, f.o.pageRows)
	switch {
	case err != nil:
		return nil, to, end, err
	case more:
		return rows, place{Source: from.Source, After: last}, end, nil
	case from.Source+1 < len(f.sources):
		return rows, place{Source: from.Source + 1}, end, nil
	}
	return rows, place{Listed: true}, end, nil
}

// pageBuilder collects the events of a page.
type pageBuilder struct {
	f      *feedReader
	at     place
	events []json.RawMessage
	size   int
	read   int
}

// changes adds changes, and reports whether the page is full.
func (b *pageBuilder) changes(ctx context.Context, limit int) (full bool, err error) {
	list, err := b.f.feed().Read(ctx, b.f.store, b.at.At, min(limit, b.f.o.pageRows-b.read))
	if err != nil {
		return false, err
	}
	for i := range list {
		if err := b.add(&list[i]); err != nil {
			return false, err
		}
		if b.size >= pageBytes {
			return true, nil
		}
	}
	return b.read >= b.f.o.pageRows, nil
}

// until adds the changes until an end that is durable, and reports whether the page is full before it.
func (b *pageBuilder) until(ctx context.Context, end dohost.Position) (full bool, err error) {
	for b.at.At.Offset < end.Offset {
		before := b.at.At
		if full, err = b.changes(ctx, int(min(end.Offset-before.Offset, uint64(b.f.o.pageRows)))); err != nil {
			return false, err
		}
		if full {
			return b.at.At.Offset < end.Offset, nil
		}
		if b.at.At == before { // a DeleteAll of the changes
			return false, &dohost.FeedError{Feed: b.f.feed().Name, At: before, Reset: true}
		}
	}
	return false, nil
}

// add adds the event of a change, if its row is covered.
func (b *pageBuilder) add(ch *dohost.Change) error {
	b.read++
	b.at.At = ch.Position
	for i := range b.f.sources {
		s := &b.f.sources[i]
		if s.name != ch.Collection || !b.at.covers(i, dohost.Cursor(ch.Key)) {
			continue
		}
		event, err := s.event(ch)
		if err != nil {
			return err
		}
		b.events, b.size = append(b.events, event), b.size+len(event)
	}
	return nil
}

// covers reports whether the client has the row of a source at a cursor, if there is one.
func (p *place) covers(source int, at dohost.Cursor) bool {
	return p.Listed || source < p.Source || source == p.Source && at <= p.After
}

// page returns the page. It is nil after an error.
func (b *pageBuilder) page(from place, upToDate bool) *feedPage {
	p := &feedPage{next: b.at, page: page{
		info: info{ContentType: "application/json"}, Empty: len(b.events) == 0,
		From: from.String(), Next: b.at.String(), UpToDate: upToDate,
	}}
	data := append(make([]byte, 0, b.size+len(b.events)+2), '[')
	for i, event := range b.events {
		if i > 0 {
			data = append(data, ',')
		}
		data = append(data, event...)
	}
	p.Data = append(data, ']')
	return p
}

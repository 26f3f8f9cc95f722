package streams

import (
	"context"
	"errors"
	"mime"
	"sync"
	"time"

	"github.com/dohost/dohost"
)

// readRequest asks for a page of a stream.
type readRequest struct {
	Start bool // from the beginning
	Now   bool // from the tail
	From  position
}

// page is the data after an offset, up to the end of the chunk that reaches chunkSize, or up to the chunk maxRows. Readers share it: its
// memory must not change.
type page struct {
	info
	Gone       bool   // the stream does not have the offset
	Data       []byte // for JSON, an array
	Empty      bool   // there are no chunks
	From, Next string // offsets
	UpToDate   bool   // Next is the tail

	encode sync.Once // sets event
	event  []byte
}

// eof reports whether the page ends a closed stream.
func (p *page) eof() bool { return p.UpToDate && p.Closed }

// renewal returns a channel that has a value when a waiting reader has to read again, since each read restarts the TTL: a stream does not
// expire while it has readers. It is nil without a TTL.
func (p *page) renewal() <-chan time.Time {
	if p.TTL <= 0 {
		return nil
	}
	return time.After(p.TTL / 2)
}

// read returns a page, or nil if the stream does not exist. It restarts the TTL.
func (s *Stream) read(ctx context.Context, r readRequest) (*page, error) {
	p, err := s.load(ctx)
	if err != nil || p == nil {
		return nil, err
	}
	after := r.From.N
	switch {
	case r.Start:
		after = 0
	case r.Now:
		after = p.Tail
	default:
		if has, err := s.has(ctx, p, r.From); err != nil || !has {
			return &page{info: p.info(), Gone: true}, err
		}
	}
	data, last, err := s.data(ctx, p, after)
	if err != nil {
		return nil, err
	}
	from, err := s.at(ctx, p, after)
	if err != nil {
		return nil, err
	}
	next, err := s.at(ctx, p, last)
	if err != nil {
		return nil, err
	}
	due := p.due()
	if p.touch() {
		err := dohost.Transaction(ctx, func(ctx context.Context) error { return s.save(ctx, p, due) })
		if err != nil && !errors.Is(err, dohost.ErrNoSpace) { // a full disk prevents no read: the deadline stays
			return nil, err
		}
	}
	return &page{
		info: p.info(), Data: data, Empty: last == after,
		From: from.String(), Next: next.String(), UpToDate: last == p.Tail,
	}, nil
}

// maxRows bounds the chunks of a page: a stream of tiny appends needs more pages.
const maxRows = 4096

// data returns the data of a page, and the number of its last chunk.
func (s *Stream) data(ctx context.Context, p *properties, after uint64) (data []byte, last uint64, err error) {
	last = after
	array := isJSON(p.ContentType)
	if array {
		data = append(data, '[')
	}
	from := &dohost.Query[chunk]{After: dohost.Cursor(dohost.KeyOf(after)), End: dohost.KeyOf(p.Tail + 1), Limit: maxRows}
	for row, err := range chunks.All(ctx, s.state.Storage(), from) {
		if err != nil {
			return nil, 0, err
		}
		if array && last > after {
			data = append(data, ',')
		}
		data, last = append(data, row.Value.Data...), row.Value.N
		if len(data) >= chunkSize {
			break
		}
	}
	if array {
		data = append(data, ']')
	}
	return data, last, nil
}

// defaultType is the content type of a stream whose creator names none.
const defaultType = "application/octet-stream"

// mediaType returns a content type without its parameters, in lower case. The content types of requests are checked before.
func mediaType(contentType string) string {
	m, _, _ := mime.ParseMediaType(contentType) // empty for no type
	return m
}

// isJSON reports whether streams of a content type consist of messages.
func isJSON(contentType string) bool { return mediaType(contentType) == "application/json" }

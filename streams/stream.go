package streams

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/dohost/dohost"
)

// Stream is the object of a stream. All of its state is in its storage:
//
//   - The row of properties exists if and only if the stream does. Each append changes it.
//   - The chunks are numbered from 1, without gaps, up to the row's Tail. A chunk never changes.
//   - The row of a producer has its last accepted request.
//   - The row of a history has the number of its first chunk.
//   - The notices are the changes that subscriptions may not know yet. They may remain for a moment when the stream is deleted.
//
// Each event writes all of them in one batch, so they are consistent after any end of an incarnation. The host keeps the writes of a
// handler that returns an error. So an event with more than one write has all of them in one Transaction: if a write fails, since the disk
// is full or the host has no memory for it, none of them remains. DeleteAll is not possible in a Transaction: see remove.
type Stream struct {
	state     *dohost.State
	signals   *signals
	histories uint64 // that this incarnation has begun

	directory   *directory
	subscribers []*subscriber // that match the path
	version     uint64        // of the directory when they were found; zero: never

	rounds  [late + 1]bool  // that are in progress
	late    map[string]bool // the subscriptions that are late
	resumed bool            // the notices of earlier incarnations were looked for
}

// properties is the state of a stream, apart from its chunks and producers.
type properties struct {
	ContentType string // as the creator has sent it
	Sliding     bool   // TTL is set
	TTL         time.Duration
	ExpiresAt   time.Time // zero: not set
	Deadline    time.Time // the end of the present TTL; zero without one

	Tail uint64
	Last span         // of the tail
	By   dohost.Epoch // of the incarnation that has begun it

	Closed    bool
	ClosedBy  producerRequest // zero: not by a producer
	Seq       string          // the last Stream-Seq
	Producers int             // rows of producers

	Notify time.Time // when the alarm repeats the notices; zero: there were none
}

// span is a history and its first position: the number of its first chunk, or 0 for the history that begins with the stream.
//
// Each incarnation begins a history with its first append. The last one may have come from an import or a restored copy of the store, which
// lacks appends whose offsets clients have, and no state of an object distinguishes the two.
type span struct {
	History history
	First   uint64
}

// spans has a row for each history of the stream.
var spans = dohost.Collection[span]{
	Name: "histories",
	Key:  func(h span) string { return string(dohost.KeyOf(h.First)) },
}

// chunk is a part of the stream's data: bytes, or JSON messages with commas between them.
type chunk struct {
	N    uint64
	Data []byte
}

const propertiesKey = "properties"

var chunks = dohost.Collection[chunk]{
	Name:  "chunks",
	Key:   func(c chunk) string { return string(dohost.KeyOf(c.N)) },
	Blind: true,
}

// load returns the properties, or nil if the stream does not exist. It deletes a stream that has expired. It may give up the turn before it
// reads them.
func (s *Stream) load(ctx context.Context) (*properties, error) {
	s.resume(ctx)
	for {
		p, ok, err := dohost.Get[properties](ctx, s.state.Storage(), propertiesKey)
		if err != nil || !ok {
			return nil, err
		}
		switch {
		case !p.expired():
			return &p, nil
		case s.directory.isLoaded(): // its subscriptions are known
			return nil, s.remove(ctx, &p)
		}
		if err := s.directory.load(ctx, hostOf(s.state)); err != nil {
			return nil, err
		}
	}
}

// save writes the properties, and the alarm if due, the earlier result of p.due, has changed. It needs a transaction.
func (s *Stream) save(ctx context.Context, p *properties, due time.Time) error {
	if at := p.due(); !at.Equal(due) {
		set := s.state.SetAlarm
		if !p.Notify.IsZero() {
			set = s.state.SetStartAlarm // a crash may have ended a round
		}
		if err := set(ctx, at); err != nil {
			return err
		}
	}
	return dohost.Put(ctx, s.state.Storage(), propertiesKey, *p)
}

// changed wakes the readers when the writes of this event are durable. A wake-up without a change does no harm, so the error of an
// output that must not leave is ignored.
func (s *Stream) changed(ctx context.Context) error {
	name := s.state.ID().Name
	if !s.signals.watched(name) {
		return nil
	}
	return s.state.Emit(ctx, func(error) { s.signals.wake(name) })
}

// wakers returns the signals of all streams of the host.
func (s *Stream) wakers(context.Context, struct{}) (*signals, error) { return s.signals, nil }

// due returns the time of the alarm; zero: none.
func (p *properties) due() time.Time {
	if end := p.end(); p.Notify.IsZero() || !end.IsZero() && end.Before(p.Notify) {
		return end
	}
	return p.Notify
}

func (p *properties) tail() position { return position{p.Last.History, p.Tail} }

// end returns when the stream expires; zero: never.
func (p *properties) end() time.Time {
	if p.Deadline.IsZero() || !p.ExpiresAt.IsZero() && p.ExpiresAt.Before(p.Deadline) {
		return p.ExpiresAt
	}
	return p.Deadline
}

func (p *properties) expired() bool {
	end := p.end()
	return !end.IsZero() && !time.Now().Before(end)
}

// touch restarts the TTL, and reports whether that has changed the properties. The deadline has some time to spare, so that not every
// read is a write: a stream never expires early, and at most a sixteenth of its TTL or a minute late.
func (p *properties) touch() (changed bool) {
	if !p.Sliding {
		return false
	}
	earliest := time.Now().Add(p.TTL)
	if !p.Deadline.Before(earliest) {
		return false
	}
	p.Deadline = earliest.Add(min(p.TTL/16, time.Minute))
	return true
}

// add appends chunks.
func (s *Stream) add(ctx context.Context, p *properties, data [][]byte) error {
	if len(data) == 0 {
		return nil
	}
	if err := s.note(ctx, p); err != nil {
		return err
	}
	if p.By != s.state.Epoch() {
		if err := s.begin(ctx, p, span{s.newHistory(p.Last.History), p.Tail + 1}); err != nil {
			return err
		}
	}
	for _, d := range data {
		p.Tail++
		if err := chunks.Put(ctx, s.state.Storage(), chunk{p.Tail, d}); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stream) newHistory(last history) history {
	s.histories++
	return historyOf(s.state.Epoch(), s.histories, last)
}

// begin begins a history.
func (s *Stream) begin(ctx context.Context, p *properties, h span) error {
	p.Last, p.By = h, s.state.Epoch()
	return spans.Put(ctx, s.state.Storage(), h)
}

// at returns the position after a chunk.
func (s *Stream) at(ctx context.Context, p *properties, n uint64) (position, error) {
	if n >= p.Last.First {
		return position{p.Last.History, n}, nil
	}
	q := &dohost.Query[span]{End: dohost.KeyOf(n + 1), Reverse: true, Limit: 1}
	rows, err := spans.List(ctx, s.state.Storage(), q)
	if err != nil || len(rows) == 0 {
		return position{}, cmp.Or(err, errNoHistory)
	}
	return position{rows[0].Value.History, n}, nil
}

var errNoHistory = errors.New("streams: a chunk has no history")

// has reports whether the stream has a position: it has no offsets of a deleted stream of its name, and none of appends that an import or
// a restored copy of the store lacks.
func (s *Stream) has(ctx context.Context, p *properties, want position) (bool, error) {
	if want.N > p.Tail {
		return false, nil
	}
	at, err := s.at(ctx, p, want.N)
	return at == want, err
}

// info is the state of a stream for the header of a response.
type info struct {
	ContentType string
	Sliding     bool
	TTL         time.Duration
	ExpiresAt   time.Time
	Tail        string // offset
	Closed      bool
}

func (p *properties) info() info {
	return info{p.ContentType, p.Sliding, p.TTL, p.ExpiresAt, p.tail().String(), p.Closed}
}

// createRequest has the properties and the first data of a stream.
type createRequest struct {
	ContentType string
	Sliding     bool
	TTL         time.Duration
	ExpiresAt   time.Time
	Closed      bool
	Data        [][]byte
}

// createResult is the answer to a createRequest. Conflict is a stream that exists with other properties.
type createResult struct {
	info
	Created, Conflict bool
}

// create creates the stream, unless it exists.
func (s *Stream) create(ctx context.Context, r *createRequest) (createResult, error) {
	if err := s.directory.load(ctx, hostOf(s.state)); err != nil {
		return createResult{}, err
	}
	old, err := s.load(ctx)
	if err != nil {
		return createResult{}, err
	}
	if old != nil {
		same := mediaType(old.ContentType) == mediaType(r.ContentType) && old.Sliding == r.Sliding && old.TTL == r.TTL &&
			old.ExpiresAt.Equal(r.ExpiresAt) && old.Closed == r.Closed
		return createResult{info: old.info(), Conflict: !same}, nil
	}
	p := &properties{
		ContentType: r.ContentType, Sliding: r.Sliding, TTL: r.TTL, ExpiresAt: r.ExpiresAt, Closed: r.Closed,
	}
	p.touch()
	err = dohost.Transaction(ctx, func(ctx context.Context) error {
		if err := s.begin(ctx, p, span{History: s.newHistory(history{})}); err != nil {
			return err
		}
		if err := s.add(ctx, p, r.Data); err != nil {
			return err
		}
		if box, err := s.outbox(ctx); err != nil {
			return err
		} else if len(box.Notices) > 0 { // of a deleted stream, too: the alarm must still repeat them
			p.Notify = time.Now().Add(noticeDelay)
		}
		if err := s.save(ctx, p, time.Time{}); err != nil {
			return err
		}
		return s.changed(ctx)
	})
	if err == nil && len(r.Data) > 0 {
		s.announce(ctx, p)
	}
	return createResult{info: p.info(), Created: true}, err
}

// head returns the state of the stream; ok is false if it does not exist.
func (s *Stream) head(ctx context.Context, _ struct{}) (found *info, err error) {
	p, err := s.load(ctx)
	if err != nil || p == nil {
		return nil, err
	}
	i := p.info()
	return &i, nil
}

// delete deletes the stream, and reports whether it existed.
func (s *Stream) delete(ctx context.Context, _ struct{}) (existed bool, err error) {
	if err := s.directory.load(ctx, hostOf(s.state)); err != nil {
		return false, err
	}
	p, err := s.load(ctx)
	if err != nil || p == nil {
		return false, err
	}
	if err := s.remove(ctx, p); err != nil {
		return false, err
	}
	return true, nil
}

package streams

import (
	"context"
	"time"

	"github.com/dohost/dohost"
)

const (
	// maxProducers bounds the producers of a stream.
	maxProducers = 1000
	// producerAge is the idle time after which the row of a producer may make room for the row of another producer.
	producerAge = 7 * 24 * time.Hour
)

// producerRequest identifies a request of an idempotent producer. The zero value means no producer.
type producerRequest struct {
	ID         string
	Epoch, Seq int64
}

// producer is the last accepted request of a producer.
type producer struct {
	Last producerRequest
	Day  int64 // of the request, since 1970; by days, since each change moves the row in its index
}

var producers = dohost.Collection[producer]{
	Name:    "producers",
	Key:     func(p producer) string { return p.Last.ID },
	Indexes: []dohost.Index[producer]{{Name: "day", Of: func(p producer) dohost.Key { return dohost.KeyOf(p.Day) }}},
}

// appendRequest appends data to a stream, closes it, or both.
type appendRequest struct {
	ContentType string // empty without Data
	Data        [][]byte
	Seq         string // empty: none
	Close       bool
	Producer    producerRequest
}

// outcome is the answer to an appendRequest.
type outcome int

const (
	appended         outcome = iota
	duplicate                // the producer's request was accepted before
	notFound                 // there is no stream
	closedBefore             // the stream is closed
	otherContentType         // the stream has another content type
	seqTooLow                // Seq does not come after the last one
	staleEpoch               // the producer has a newer epoch, Producer.Epoch
	epochNotAtZero           // the first request of an epoch has another number than 0
	seqGap                   // the producer's next request is Producer.Seq
	tooManyProducers
)

// appendResult is the answer to an appendRequest.
type appendResult struct {
	info
	Outcome  outcome
	Producer producerRequest // the last accepted one, except for seqGap
}

// append applies a request, unless it is refused. A refusal and an error write nothing.
func (s *Stream) append(ctx context.Context, r *appendRequest) (result appendResult, err error) {
	if err := s.directory.load(ctx, hostOf(s.state)); err != nil {
		return appendResult{}, err
	}
	p, err := s.load(ctx)
	if err != nil || p == nil {
		return appendResult{Outcome: notFound}, err
	}
	err = dohost.Transaction(ctx, func(ctx context.Context) (err error) {
		result, err = s.appendTo(ctx, p, r)
		return err
	})
	if err == nil && result.Outcome == appended && len(r.Data) > 0 {
		s.announce(ctx, p)
	}
	return result, err
}

// appendTo is append to a stream that exists, in a transaction.
func (s *Stream) appendTo(ctx context.Context, p *properties, r *appendRequest) (appendResult, error) {
	last, known, err := s.producer(ctx, r.Producer)
	if err != nil {
		return appendResult{}, err
	}
	result := p.decide(r, last, known)
	if result.Outcome != appended || p.Closed { // closing again writes nothing
		result.info = p.info()
		return result, nil
	}
	if r.Producer.ID != "" {
		switch ok, err := s.accept(ctx, p, r.Producer, known); {
		case err != nil:
			return appendResult{}, err
		case !ok:
			return appendResult{info: p.info(), Outcome: tooManyProducers}, nil
		}
	}
	if r.Seq != "" {
		p.Seq = r.Seq
	}
	if r.Close {
		p.Closed, p.ClosedBy = true, r.Producer
	}
	due := p.due()
	if err := s.add(ctx, p, r.Data); err != nil {
		return appendResult{}, err
	}
	p.touch()
	if err := s.save(ctx, p, due); err != nil {
		return appendResult{}, err
	}
	result.info = p.info()
	return result, s.changed(ctx)
}

// decide decides about a request in the order that the protocol recommends. A closed stream is a conflict for every producer except the
// one that has closed it, with the same request, and except one with an old epoch.
func (p *properties) decide(r *appendRequest, last producerRequest, known bool) appendResult {
	at := r.Producer
	switch {
	case known && at.Epoch < last.Epoch:
		return appendResult{Outcome: staleEpoch, Producer: last}
	case p.Closed && at.ID != "" && at == p.ClosedBy:
		return appendResult{Outcome: duplicate, Producer: at}
	case p.Closed && at.ID == "" && r.Close && len(r.Data) == 0:
		return appendResult{}
	case p.Closed:
		return appendResult{Outcome: closedBefore}
	case len(r.Data) > 0 && mediaType(r.ContentType) != mediaType(p.ContentType):
		return appendResult{Outcome: otherContentType}
	case known && at.Epoch > last.Epoch && at.Seq != 0:
		return appendResult{Outcome: epochNotAtZero}
	case known && at.Epoch == last.Epoch && at.Seq <= last.Seq:
		return appendResult{Outcome: duplicate, Producer: last}
	case known && at.Epoch == last.Epoch && at.Seq > last.Seq+1:
		return appendResult{Outcome: seqGap, Producer: producerRequest{Seq: last.Seq + 1}}
	case !known && at.Seq != 0:
		return appendResult{Outcome: seqGap}
	case r.Seq != "" && r.Seq <= p.Seq:
		return appendResult{Outcome: seqTooLow}
	}
	return appendResult{Producer: at}
}

// producer returns the last accepted request of a producer.
func (s *Stream) producer(ctx context.Context, r producerRequest) (last producerRequest, known bool, err error) {
	if r.ID == "" {
		return last, false, nil
	}
	row, known, err := producers.Get(ctx, s.state.Storage(), r.ID)
	return row.Value.Last, known, err
}

// accept writes the row of a producer. If there are too many, it replaces the one that was idle for the longest time, or returns false
// if that was less than producerAge: a producer whose row is deleted may append twice.
func (s *Stream) accept(ctx context.Context, p *properties, r producerRequest, known bool) (ok bool, err error) {
	day := time.Now().Unix() / int64(24*time.Hour/time.Second)
	if !known && p.Producers >= maxProducers {
		idle, err := producers.List(ctx, s.state.Storage(), &dohost.Query[producer]{Index: "day", Limit: 1})
		if err != nil {
			return false, err
		}
		if len(idle) == 0 || day-idle[0].Value.Day <= int64(producerAge/(24*time.Hour)) {
			return false, nil
		}
		if _, err := producers.Delete(ctx, s.state.Storage(), idle[0].Key); err != nil {
			return false, err
		}
		p.Producers--
	}
	if !known {
		p.Producers++
	}
	return true, producers.Put(ctx, s.state.Storage(), producer{r, day})
}

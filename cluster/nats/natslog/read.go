package natslog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dohost/dohost/sharedlog"
)

// Read implements [sharedlog.Lease].
func (o *lease) Read(ctx context.Context, from uint64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if from > o.newest {
			return
		}
		a := assembly{next: from}
		if err := o.read(ctx, &a, func(record []byte) bool { return yield(record, nil) }); err != nil {
			if errors.Is(err, errMissing) && a.next < o.acquired.number { // a purge deletes records in their order
				err = fmt.Errorf("record %d: %w: %w", a.next, sharedlog.ErrPurged, err)
			}
			yield(nil, fmt.Errorf("natslog: %w", err))
		}
	}
}

// read yields the records from the next one of a to the newest one.
func (o *lease) read(ctx context.Context, a *assembly, yield func([]byte) bool) error {
	start, err := o.log.find(ctx, a.next, a.next, o.first) // no record has a sequence that is less than its number
	if err != nil {
		return err
	}
	for m, err := range o.log.follow(ctx, o.log.stream, o.log.subject(), start) {
		switch {
		case err != nil:
			return err
		case m.sequence != start:
			return o.log.damaged(start, errMissing)
		}
		record, whole, err := a.add(m.data)
		if err != nil {
			return o.log.damaged(m.sequence, err)
		}
		if whole && (!yield(record) || a.next > o.newest) {
			return nil
		}
		if start++; start > o.first {
			break
		}
	}
	return o.log.damaged(o.first, fmt.Errorf("%w: record %d", errMissing, a.next))
}

// errMissing reports messages that are not in the stream.
var errMissing = errors.New("missing message")

// assembly puts the records of a log together from their messages.
type assembly struct {
	next       uint64 // the record to yield
	generation uint64 // of the last message
	number     uint64 // the newest whole record; 0 if it is not known yet
	parts      uint32 // of the record after it, in data
	data       []byte
}

// add returns a record if the message completes the next one.
func (a *assembly) add(message []byte) (record []byte, whole bool, err error) {
	f, err := decodeFrame(message)
	switch known := a.generation > 0; {
	case err != nil:
		return nil, false, err
	case f.kind == kindBase:
		if known && (f.generation != a.generation || f.number != a.number || a.parts > 0) {
			return nil, false, fmt.Errorf("a base of owner %d after record %d follows owner %d and part %d after record %d", f.generation, f.number, a.generation, a.parts, a.number)
		}
		a.generation, a.number = f.generation, f.number
	case f.kind == kindMark:
		if known && (f.generation <= a.generation || f.number != a.number) {
			return nil, false, fmt.Errorf("owner %d after record %d follows owner %d after record %d", f.generation, f.number, a.generation, a.number)
		}
		*a = assembly{next: a.next, generation: f.generation, number: f.number} // a former owner may have left parts of a record
	case known && (f.generation != a.generation || f.number != a.number+1 || f.part != a.parts):
		return nil, false, fmt.Errorf("part %d of record %d of owner %d follows part %d after record %d of owner %d",
			f.part, f.number, f.generation, a.parts, a.number, a.generation)
	case !known && f.part > 0 && f.number >= a.next: // the first message may only be any part of an earlier record
		return nil, false, fmt.Errorf("part %d of record %d is the first message", f.part, f.number)
	default:
		a.generation, a.number, a.parts = f.generation, f.number-1, f.part+1
		if f.number == a.next {
			a.data = append(a.data, f.payload...)
		}
		if a.parts == f.parts {
			record, whole = a.data, f.number == a.next
			a.number, a.parts, a.data = f.number, 0, nil
		}
	}
	if a.number >= a.next && !whole {
		return nil, false, fmt.Errorf("%w: record %d", errMissing, a.next)
	}
	if whole {
		a.next++
	}
	return record, whole, nil
}

// message is a message of the stream.
type message struct {
	sequence uint64
	data     []byte
}

// readAhead limits the bytes of messages that wait for the reader.
const readAhead = 8 << 20

// follow yields the messages of a subject from a sequence on, and waits for more. After a failure of a server it continues with the next one.
func (l *Log) follow(ctx context.Context, stream jetstream.Stream, subject string, from uint64) iter.Seq2[message, error] {
	return func(yield func(message, error) bool) {
		progress := time.Now()
		for {
			more := true
			err := l.pull(ctx, stream, subject, from, func(m message) bool {
				from = m.sequence + 1
				more = yield(m, nil)
				progress = time.Now() // the caller may have taken long
				return more
			})
			if !more {
				return
			}
			if time.Since(progress) < electionTime {
				if err = sleep(ctx, retryTime); err == nil {
					continue
				}
			}
			yield(message{}, err)
			return
		}
	}
}

// pull yields messages until a server fails, or has no message for some time.
func (l *Log) pull(ctx context.Context, stream jetstream.Stream, subject string, from uint64, yield func(message) bool) error {
	attempt, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	consumer, err := stream.OrderedConsumer(attempt, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subject}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, InactiveThreshold: time.Minute,
	})
	if err != nil {
		return err
	}
	it, err := consumer.Messages(jetstream.PullMaxBytes(readAhead))
	if err != nil {
		return err
	}
	defer it.Stop()
	for {
		next, cancel := context.WithTimeout(ctx, answerTime)
		m, err := it.Next(jetstream.NextContext(next))
		cancel()
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if !yield(message{meta.Sequence.Stream, m.Data()}) {
			return nil
		}
	}
}

package natslog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Read implements [sharedlog.Lease]. Each record has a sequence that is not less than its number, so the reading begins there.
func (o *lease) Read(ctx context.Context, from uint64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if from > o.newest {
			return
		}
		a := assembly{next: from}
		for m, err := range o.log.messages(ctx, max(from, 1), o.first) {
			if err != nil {
				yield(nil, fmt.Errorf("natslog: %w", err))
				return
			}
			record, whole, err := a.add(m.data)
			if err != nil {
				yield(nil, fmt.Errorf("natslog: %w", o.log.damaged(m.sequence, err)))
				return
			}
			if whole && (!yield(record, nil) || a.next > o.newest) {
				return
			}
		}
		yield(nil, fmt.Errorf("natslog: %w", o.log.damaged(o.first, fmt.Errorf("record %d is missing", a.next))))
	}
}

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
		return nil, false, fmt.Errorf("record %d is missing", a.next)
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

// messages yields the messages with the sequences from one to another. After a failure of a server it continues with the next one.
func (l *Log) messages(ctx context.Context, from, to uint64) iter.Seq2[message, error] {
	return func(yield func(message, error) bool) {
		progress := time.Now()
		for from <= to {
			begun, stopped := from, false
			err := l.pull(ctx, from, to, func(m message) bool {
				from = m.sequence + 1
				stopped = !yield(m, nil)
				return !stopped
			})
			if stopped || err == nil {
				return
			}
			if from > begun {
				progress = time.Now()
			}
			if !errors.Is(err, errDamaged) && time.Since(progress) < electionTime {
				if err = sleep(ctx, retryTime); err == nil {
					continue
				}
			}
			yield(message{}, err)
			return
		}
	}
}

// pull yields messages until one server fails.
func (l *Log) pull(ctx context.Context, from, to uint64, yield func(message) bool) error {
	attempt, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	consumer, err := l.stream.OrderedConsumer(attempt, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, InactiveThreshold: time.Minute,
	})
	if err != nil {
		return err
	}
	it, err := consumer.Messages(jetstream.PullMaxBytes(readAhead))
	if err != nil {
		return err
	}
	defer it.Stop()
	for from <= to {
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
		if meta.Sequence.Stream != from {
			return l.damaged(meta.Sequence.Stream, fmt.Errorf("sequence %d is missing", from))
		}
		if !yield(message{from, m.Data()}) {
			return nil
		}
		from++
	}
	return nil
}

package natslog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dohost/dohost/sharedlog"
)

const (
	maxRecord = 32 << 20
	// A larger record has several messages, so that servers with the default max_payload accept it.
	maxPart     = 1<<20 - headerBytes
	minPart     = 16 << 10
	headerBytes = 4 << 10 // for the headers and the frame of a message
)

// Append implements [sharedlog.Lease]. An attempt waits two seconds for the answers of the servers.
func (o *lease) Append(ctx context.Context, number uint64, record []byte) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := o.takeTurn(ctx); err != nil {
		return err
	}
	defer o.endTurn()
	if err := o.publishPendingBase(ctx); err != nil && o.Valid() {
		if errors.Is(err, sharedlog.ErrUnknown) {
			err = fmt.Errorf("%w: %v", sharedlog.ErrUnavailable, err) // the record was not appended
		}
		return fmt.Errorf("natslog: %w", err)
	}
	sum := maphash.Bytes(o.seed, record)
	switch {
	case !o.Valid():
		return fmt.Errorf("natslog: generation %d: %w", o.generation, sharedlog.ErrFenced)
	case number == o.number && sum == o.sum:
		return nil
	case number != o.number+1:
		return fmt.Errorf("natslog: append of record %d after record %d, or of another record with its number", number, o.number)
	case o.tried && sum != o.triedSum:
		return fmt.Errorf("natslog: another record %d than at the last attempt", number)
	case len(record) > maxRecord:
		return fmt.Errorf("natslog: a record has %d bytes, the limit is %d", len(record), maxRecord)
	}
	o.tried, o.triedSum = true, sum
	parts := max(1, (len(record)+o.size-1)/o.size)
	for ; o.part < parts; o.part++ {
		payload := record[o.part*o.size : min((o.part+1)*o.size, len(record))]
		f := frame{kindRecord, o.generation, number, o.base.sequence, uint32(o.part), uint32(parts), payload}
		if err := o.publish(ctx, f.encode()); err != nil {
			return fmt.Errorf("natslog: %w", err)
		}
	}
	o.number, o.sum, o.part, o.tried = number, sum, 0, false
	return nil
}

// publish makes a message durable as the next one of the stream. The texts of its errors do not begin with the name of the package.
func (o *lease) publish(ctx context.Context, data []byte) error {
	attempt, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	closed := o.log.nc.IsClosed() // if it is closed later, the message may be in the stream
	sequence, err := o.send(attempt, o.tail, data)
	if isRefused(err) {
		sequence, err = o.resolve(attempt, data, err)
	}
	switch {
	case err == nil:
		o.tail, o.unknown = sequence, false
		return nil
	case ctx.Err() != nil:
		o.unknown = true
		return context.Cause(ctx)
	case errors.Is(err, errDamaged) || errors.Is(err, sharedlog.ErrFenced) || errors.Is(err, nats.ErrMaxPayload):
		o.unknown = o.unknown || errors.Is(err, errDamaged)
		return err
	case errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrReconnectBufExceeded) || closed:
		if o.unknown {
			break // the message of an earlier attempt may be in the stream
		}
		return fmt.Errorf("%w: %w", sharedlog.ErrUnavailable, err)
	}
	o.unknown = true
	return fmt.Errorf("%w: %w", sharedlog.ErrUnknown, err)
}

// send publishes a message if the last one has the sequence tail. It has no id for the servers to recognize a repetition: they remember
// ids for two minutes only, and resolve needs none.
func (o *lease) send(ctx context.Context, tail uint64, data []byte) (sequence uint64, err error) {
	ack, err := o.log.js.PublishMsg(ctx, &nats.Msg{Subject: o.log.subject(), Data: data},
		jetstream.WithExpectLastSequence(tail), jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, err
	}
	if ack.Sequence != tail+1 {
		return 0, fmt.Errorf("%w: the stream has acknowledged sequence %d after %d", errDamaged, ack.Sequence, tail)
	}
	return ack.Sequence, nil
}

var errDamaged = errors.New("damaged log")

// resolve finds the outcome of a message that the servers have refused.
func (o *lease) resolve(ctx context.Context, data []byte, refusal error) (sequence uint64, err error) {
	m, err := o.log.stream.GetMsg(ctx, o.tail+1)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, refusal // of an earlier attempt that is not decided yet, or of a stream that ends earlier
	case err != nil:
		return 0, err
	case !bytes.Equal(m.Data, data):
		o.lose()
		return 0, fmt.Errorf("generation %d: %w", o.generation, sharedlog.ErrFenced)
	}
	return m.Sequence, nil
}

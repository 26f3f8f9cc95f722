package natslog

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dohost/dohost/sharedlog"
)

// base is a published base. A message of the log names it; its content is in a stream for bases, with a subject of its own.
type base struct {
	number   uint64 // of its last record; 0 if there is no base
	sequence uint64 // of the message that names it
	size     uint64
	name     string
}

func (b *base) encode() []byte {
	return append(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, b.number), b.size), b.name...)
}

const baseStart = 8 + 8

func decodeBase(sequence uint64, payload []byte) (base, error) {
	if len(payload) <= baseStart {
		return base{}, errors.New("the message names no base")
	}
	return base{
		number: binary.BigEndian.Uint64(payload), sequence: sequence, size: binary.BigEndian.Uint64(payload[8:]), name: string(payload[baseStart:]),
	}, nil
}

func (l *Log) baseSubject(name string) string { return "dohost.base." + l.cell + "." + name }

// baseStream is the stream of the contents of bases.
func baseStream(cell string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: "dohost-bases-" + cell, Subjects: []string{"dohost.base." + cell + ".*"}, Description: "the bases of a cell of dohost",
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, Storage: jetstream.FileStorage, Replicas: replicas, DenyDelete: true,
	}
}

// findBase reads the base that the last message of the log names by its sequence.
func (o *lease) findBase(ctx context.Context, sequence uint64) error {
	if sequence == 0 {
		return nil
	}
	m, err := o.log.stream.GetMsg(ctx, sequence)
	if err != nil {
		return err
	}
	f, err := decodeFrame(m.Data)
	if err == nil && f.kind != kindBase {
		err = errors.New("the message names no base")
	}
	if err == nil {
		o.acquired, err = decodeBase(sequence, f.payload)
	}
	if err != nil {
		return o.log.damaged(sequence, err)
	}
	o.base = o.acquired
	return nil
}

// Base implements [sharedlog.Lease].
func (o *lease) Base() uint64 { return o.acquired.number }

// ReadBase implements [sharedlog.Lease].
func (o *lease) ReadBase(ctx context.Context) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &baseReader{left: o.acquired.size, cancel: cancel}
	r.next, r.stop = iter.Pull2(o.log.follow(ctx, o.log.bases, o.log.baseSubject(o.acquired.name), 1))
	return r, nil
}

// baseReader reads the messages of a base.
type baseReader struct {
	next   func() (message, error, bool)
	stop   func()
	cancel context.CancelFunc
	chunk  []byte
	left   uint64 // the bytes after chunk
}

// Read implements [io.Reader].
func (r *baseReader) Read(b []byte) (int, error) {
	for len(r.chunk) == 0 {
		if r.left == 0 {
			return 0, io.EOF
		}
		m, err, more := r.next()
		if err == nil && (!more || uint64(len(m.data)) > r.left) {
			err = fmt.Errorf("%w: the base is longer than the message that names it says", errDamaged)
		}
		if err != nil {
			return 0, fmt.Errorf("natslog: base: %w", err)
		}
		r.chunk = m.data
		r.left -= uint64(len(m.data))
	}
	n := copy(b, r.chunk)
	r.chunk = r.chunk[n:]
	return n, nil
}

// Close implements [io.Closer].
func (r *baseReader) Close() error {
	r.cancel()
	r.stop()
	return nil
}

// baseWriter publishes the content of a base in messages, one after the other.
type baseWriter struct {
	ctx  context.Context
	log  *Log
	name string
	part int // the size of a message
	data []byte
	size uint64
	last uint64 // the sequence of the last message; 0 for none
}

// Write implements [io.Writer].
func (w *baseWriter) Write(b []byte) (int, error) {
	w.data = append(w.data, b...)
	for len(w.data) >= w.part {
		if err := w.publish(w.data[:w.part]); err != nil {
			return 0, err
		}
		w.data = append(w.data[:0], w.data[w.part:]...)
	}
	return len(b), nil
}

func (w *baseWriter) flush() error {
	if len(w.data) == 0 {
		return nil
	}
	return w.publish(w.data)
}

// publish publishes the next message after the last one of the same base, so that a repetition after a lost answer is refused.
// A repetition of a message that is still on its way delays both, so also the first attempt is long.
func (w *baseWriter) publish(data []byte) error {
	subject := w.log.baseSubject(w.name)
	err := w.log.persistFrom(w.ctx, answerTime, func(ctx context.Context) error {
		ack, err := w.log.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data},
			jetstream.WithExpectLastSequencePerSubject(w.last), jetstream.WithRetryAttempts(0))
		if isRefused(err) { // the answer to an earlier attempt was lost, or the servers have not decided it yet
			last, readErr := w.log.bases.GetLastMsgForSubject(ctx, subject)
			if readErr == nil && last.Sequence > w.last && bytes.Equal(last.Data, data) {
				w.last = last.Sequence
				return nil
			}
			return err
		}
		if err == nil {
			w.last = ack.Sequence
		}
		return err
	})
	w.size += uint64(len(data))
	return err
}

// WriteBase implements [sharedlog.Lease].
func (o *lease) WriteBase(ctx context.Context, number uint64, write func(io.Writer) error) error {
	if err := o.ended(ctx); err != nil {
		return err
	}
	w := &baseWriter{ctx: ctx, log: o.log, name: fmt.Sprintf("%d-%d-%s", o.generation, number, rand.Text()), part: o.size}
	err := write(w)
	if err == nil {
		err = w.flush()
	}
	published := false
	if err == nil {
		published, err = o.nameBase(ctx, base{number: number, size: w.size, name: w.name})
	} else {
		err = fmt.Errorf("natslog: base of record %d: %w", number, err)
	}
	switch {
	case err == nil:
		o.removeBases(ctx, w.name)
	case !published:
		w.remove()
	}
	return err
}

// nameBase publishes the message that names a base. After an error, published reports whether the base may be published.
func (o *lease) nameBase(ctx context.Context, b base) (published bool, err error) {
	if err := o.takeTurn(ctx); err != nil {
		return false, err
	}
	defer o.endTurn()
	if err := o.ended(ctx); err != nil {
		return false, err
	}
	b.sequence = o.tail + 1
	err = o.publishBase(ctx, b)
	return err == nil || o.pending != nil && o.pending.name == b.name, err
}

// removeTime is the time of the removal of a content after a failure, which may be the end of the context.
const removeTime = 2 * time.Second

// remove removes the content of a base that is not published. Otherwise failed bases would fill the servers, until they have no room for
// records. The next base of an owner removes a content that stays.
func (w *baseWriter) remove() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), removeTime)
	defer cancel()
	_ = w.log.bases.Purge(ctx, jetstream.WithPurgeSubject(w.log.baseSubject(w.name)))
}

// publishBase publishes the message that makes a base the newest one. The caller has the turn.
func (o *lease) publishBase(ctx context.Context, b base) error {
	switch {
	case o.tried || o.pending != nil:
		return fmt.Errorf("natslog: the outcome of the last message is not known: %w", sharedlog.ErrUnavailable)
	case b.number == 0 || b.number < o.base.number || b.number > o.number:
		return fmt.Errorf("natslog: base of record %d, the newest base is %d and the newest record %d", b.number, o.base.number, o.number)
	}
	o.pending = &b
	if err := o.publishPendingBase(ctx); err != nil {
		return fmt.Errorf("natslog: base of record %d: %w", b.number, err)
	}
	return nil
}

// publishPendingBase publishes the pending base, perhaps again. The caller has the turn. Until its outcome is known, no other message may be
// published: it may be in the stream after the last one.
func (o *lease) publishPendingBase(ctx context.Context) error {
	if o.pending == nil {
		return nil
	}
	f := frame{kind: kindBase, generation: o.generation, number: o.number, base: o.pending.sequence, parts: 1, payload: o.pending.encode()}
	err := o.publish(ctx, f.encode())
	switch {
	case err == nil:
		o.base = *o.pending
		o.pending = nil
	case !o.unknown:
		o.pending = nil
	}
	return err
}

// removeBases removes the contents of other bases of this owner and of former ones: this owner may be a former one itself by now. A
// failure leaves contents that do no harm, until the next base.
func (o *lease) removeBases(ctx context.Context, newest string) {
	l := o.log
	info, err := l.bases.Info(ctx, jetstream.WithSubjectFilter(l.baseSubject("*")))
	if err != nil {
		return
	}
	for subject := range info.State.Subjects {
		name := strings.TrimPrefix(subject, l.baseSubject(""))
		text, _, _ := strings.Cut(name, "-")
		if generation, err := strconv.ParseUint(text, 10, 64); err == nil && generation <= o.generation && name != newest {
			_ = l.bases.Purge(ctx, jetstream.WithPurgeSubject(subject))
		}
	}
}

// Purge implements [sharedlog.Lease]. A late purge by a former owner does no harm: a base has the records, and the log's newest one is not
// older.
func (o *lease) Purge(ctx context.Context, before uint64) error {
	if err := o.takeTurn(ctx); err != nil {
		return err
	}
	newest, tail := o.base.number, o.tail
	o.endTurn()
	if err := o.ended(ctx); err != nil {
		return err
	}
	if before > newest {
		return fmt.Errorf("natslog: purge of the records before %d, the newest base is %d", before, newest)
	}
	sequence, err := o.log.find(ctx, before, 1, tail)
	if err == nil {
		err = o.log.stream.Purge(ctx, jetstream.WithPurgeSequence(sequence))
	}
	if err != nil {
		return fmt.Errorf("natslog: purge of the records before %d: %w", before, err)
	}
	return nil
}

// find returns the sequence of the first message of a record, or of a part of it that a former owner has left, between two sequences. If
// the record was purged, also by a former owner at the same time, it is the first sequence of the stream.
func (l *Log) find(ctx context.Context, record, from, to uint64) (uint64, error) {
	from, err := l.notBefore(ctx, from)
	for from < to && err == nil {
		middle := from + (to-from)/2
		var number uint64
		number, err = l.numberAt(ctx, middle)
		switch {
		case errors.Is(err, errMissing):
			missing := err
			if from, err = l.notBefore(ctx, from); err == nil && from <= middle {
				err = missing
			}
		case number < record:
			from = middle + 1
		default:
			to = middle
		}
	}
	return from, err
}

// notBefore returns a sequence, or the first one of the stream if that is greater.
func (l *Log) notBefore(ctx context.Context, sequence uint64) (uint64, error) {
	err := l.persist(ctx, func(ctx context.Context) error {
		info, err := l.stream.Info(ctx)
		if err == nil {
			sequence = max(sequence, info.State.FirstSeq)
		}
		return err
	})
	return sequence, err
}

// numberAt returns the number of the record that the message with a sequence belongs to, or that it follows. The message is read whole.
func (l *Log) numberAt(ctx context.Context, sequence uint64) (number uint64, err error) {
	err = l.persistFrom(ctx, answerTime, func(ctx context.Context) error {
		m, err := l.stream.GetMsg(ctx, sequence)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return l.damaged(sequence, errMissing)
		}
		if err != nil {
			return err
		}
		f, err := decodeFrame(m.Data)
		if err != nil {
			return l.damaged(sequence, err)
		}
		number = f.number
		return nil
	})
	return number, err
}

// ended returns an error if the lease or the context has ended.
func (o *lease) ended(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if !o.Valid() {
		return fmt.Errorf("natslog: generation %d: %w", o.generation, sharedlog.ErrFenced)
	}
	return nil
}

func (o *lease) takeTurn(ctx context.Context) error {
	select {
	case o.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (o *lease) endTurn() { <-o.turn }

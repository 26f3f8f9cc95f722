package natslog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dohost/dohost/sharedlog"
)

// Acquire implements [sharedlog.Log]. It waits until the owner has released the log, or was silent for the time of a lease.
func (l *Log) Acquire(ctx context.Context) (sharedlog.Lease, error) {
	if err := l.checkServers(ctx); err != nil {
		return nil, err
	}
	for {
		o := &lease{log: l, owner: rand.Text(), seed: maphash.MakeSeed(), turn: make(chan struct{}, 1)}
		free, err := l.takeKey(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("natslog: waiting for the owner of cell %s: %w", l.cell, err)
		}
		if free {
			err := o.begin(ctx)
			if err == nil {
				return o, nil
			}
			if !errors.Is(err, errTooLate) {
				return nil, errors.Join(fmt.Errorf("natslog: acquiring cell %s: %w", l.cell, err), o.deleteKey(ctx))
			}
		}
		if err := sleep(ctx, retryTime); err != nil {
			return nil, fmt.Errorf("natslog: waiting for the owner of cell %s: %w", l.cell, err)
		}
	}
}

// errTooLate reports that the key of an owner may have expired before its lease began.
var errTooLate = errors.New("natslog: the key has expired before the lease began")

// takeKey makes o the owner if the log has none. The answer of the server that compares the revisions decides; a read may be old, or
// the answer to an earlier attempt may have been lost.
func (l *Log) takeKey(ctx context.Context, o *lease) (free bool, err error) {
	err = l.persist(ctx, func(ctx context.Context) error {
		last, err := l.owners.GetLastMsgForSubject(ctx, l.ownerKey())
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			last = &jetstream.RawStreamMsg{}
		case err != nil:
			return err
		case last.Header.Get(operation) == "" && string(last.Data) != o.owner:
			return nil
		}
		o.begun = time.Now()
		o.wall = o.begun.Round(0)
		o.revision, err = l.putKey(ctx, o.owner, last.Sequence)
		if free = err == nil; isRefused(err) {
			return nil // another waiting host was faster
		}
		return err
	})
	return free, err
}

// putKey writes a key whose last revision is known, and returns the next one. The key expires after the time of a lease.
func (l *Log) putKey(ctx context.Context, owner string, revision uint64) (uint64, error) {
	ack, err := l.js.PublishMsg(ctx, &nats.Msg{Subject: l.ownerKey(), Data: []byte(owner)},
		jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithMsgTTL(l.options.LeaseTime), jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// begin excludes the former owner from the log, and starts the renewals. o has the key.
func (o *lease) begin(ctx context.Context) error {
	l := o.log
	o.size = int(l.nc.MaxPayload()) - headerRoom
	o.size = min(o.size, maxPart)
	if o.size < minPart {
		return fmt.Errorf("the servers accept messages of %d bytes: want max_payload to be at least %d", l.nc.MaxPayload(), minPart+headerRoom)
	}
	o.deadline.Store(int64(l.options.LeaseTime - margin))
	err := l.persist(ctx, func(ctx context.Context) error {
		if !o.Valid() {
			return errTooLate
		}
		return o.mark(ctx)
	})
	if err != nil {
		return err
	}
	if o.generation >= maxGeneration {
		return fmt.Errorf("the log had %d owners, the limit is %d", o.generation, maxGeneration)
	}
	ctx, o.cancel = context.WithCancel(context.WithoutCancel(ctx))
	o.lost, o.renewed = make(chan struct{}), make(chan struct{})
	o.expiry = time.AfterFunc(time.Duration(o.deadline.Load())-o.elapsed(), o.lose)
	go o.run(ctx)
	return nil
}

// mark publishes the first message of the owner after the last message of the log, which a read may not have yielded: then the server
// refuses the mark, and the next attempt reads again.
func (o *lease) mark(ctx context.Context) error {
	sequence, f, err := o.log.last(ctx)
	if err != nil {
		return err
	}
	if f.kind != kindMark || string(f.payload) != o.owner { // otherwise the answer to an earlier attempt was lost
		f = frame{kind: kindMark, generation: f.generation + 1, number: f.newest(), base: f.base, parts: 1, payload: []byte(o.owner)}
		if sequence, err = o.send(ctx, sequence, f.encode()); err != nil {
			return err
		}
	}
	o.generation, o.newest, o.number = f.generation, f.number, f.number
	o.first, o.tail = sequence, sequence
	return o.findBase(ctx, f.base)
}

// last returns the last message of the log and its sequence, or 0 for an empty log.
func (l *Log) last(ctx context.Context) (sequence uint64, f frame, err error) {
	m, err := l.stream.GetLastMsgForSubject(ctx, l.subject())
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		info, err := l.stream.Info(ctx)
		if err == nil && info.State.LastSeq > 0 {
			err = fmt.Errorf("%w: stream %s has no messages any more", errDamaged, info.Config.Name)
		}
		return 0, f, err
	case err != nil:
		return 0, f, err
	}
	if f, err = decodeFrame(m.Data); err != nil {
		return 0, f, l.damaged(m.Sequence, err)
	}
	return m.Sequence, f, nil
}

func (l *Log) damaged(sequence uint64, err error) error {
	return fmt.Errorf("%w: sequence %d of stream %s: %w", errDamaged, sequence, l.stream.CachedInfo().Config.Name, err)
}

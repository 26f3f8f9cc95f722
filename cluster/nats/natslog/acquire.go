package natslog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dohost/dohost/sharedlog"
)

// Acquire implements [sharedlog.Log]. It waits until the owner has released the log, or the owner's session has ended. The log of a Table
// also waits until the record of the node is renewed.
func (l *Log) Acquire(ctx context.Context) (sharedlog.Lease, error) {
	if err := l.checkServers(ctx); err != nil {
		return nil, err
	}
	for {
		o, err := l.tryAcquire(ctx)
		switch {
		case err == nil:
			return o, nil
		case errors.Is(err, errOwned) || errors.Is(err, errTooLate):
		default:
			return nil, fmt.Errorf("natslog: acquiring cell %s: %w", l.cell, err)
		}
		if err := sleep(ctx, retryTime); err != nil {
			return nil, fmt.Errorf("natslog: waiting for the owner of cell %s: %w", l.cell, err)
		}
	}
}

var (
	// errOwned reports that the log has another owner.
	errOwned = errors.New("natslog: the log has another owner")
	// errTooLate reports that the node has no session, or that the session has ended before the lease began.
	errTooLate = errors.New("natslog: the session has ended before the lease began")
)

// tryAcquire makes the caller the owner if the log has none.
func (l *Log) tryAcquire(ctx context.Context) (*lease, error) {
	var s *session // of the node; nil for a log without a Table
	if l.table != nil {
		if s = l.table.session(); s == nil {
			return nil, errTooLate
		}
	}
	revision, err := l.findFree(ctx, s)
	if err != nil {
		return nil, err
	}
	if s == nil {
		if s, err = l.beginSession(ctx); err != nil {
			return nil, err
		}
	}
	o := &lease{
		log: l, session: s, owner: rand.Text(), revision: revision, lost: make(chan struct{}), seed: maphash.MakeSeed(), turn: make(chan struct{}, 1),
	}
	if !s.add(o) {
		return nil, errTooLate
	}
	if err = o.takeKey(ctx); err == nil {
		err = o.begin(ctx)
	}
	if err == nil {
		return o, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	return nil, errors.Join(err, o.Release(ctx))
}

// beginSession begins a session with one lease.
func (l *Log) beginSession(ctx context.Context) (*session, error) {
	s := l.newSession(ofLease, []byte(l.cell))
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.renewed = make(chan struct{})
	go s.run(ctx)
	return s, nil
}

// findFree returns the revision of the owner's key if the log has no owner: the key is deleted, or its session has ended, or it is that
// of an earlier lease of this node. The error is errOwned if the log has an owner.
func (l *Log) findFree(ctx context.Context, s *session) (revision uint64, err error) {
	err = l.persist(ctx, func(ctx context.Context) error {
		m, err := l.key(ctx, l.cell)
		if err != nil {
			return err
		}
		revision = m.Sequence
		if revision == 0 || isDeleted(m) {
			return nil
		}
		owner, name, _ := strings.Cut(string(m.Data), " ")
		if !sessionName.MatchString(name) {
			return fmt.Errorf("%w: the key %s of the owner is %q: want the names of a lease and its session", errDamaged, l.cell, m.Data)
		}
		free := false
		if s != nil && s.name == name {
			free = !s.has(owner)
		} else if free, err = l.endAbsent(ctx, name); err != nil {
			return err
		}
		if !free {
			return errOwned
		}
		return nil
	})
	return revision, err
}

// takeKey writes the key of the owner, if the key still has the revision that findFree has found. The error is errOwned if another host
// was faster.
func (o *lease) takeKey(ctx context.Context) error {
	l := o.log
	return l.persist(ctx, func(ctx context.Context) error {
		if !o.Valid() {
			return errTooLate
		}
		revision, refusal := l.put(ctx, l.cell, []byte(o.value()), o.revision, 0)
		if refusal == nil {
			o.revision = revision
		}
		if !isRefused(refusal) {
			return refusal
		}
		m, err := l.key(ctx, l.cell)
		switch {
		case err != nil:
			return err
		case string(m.Data) == o.value(): // the answer to an earlier attempt was lost
			o.revision = m.Sequence
			return nil
		case m.Sequence > o.revision:
			return errOwned
		}
		return refusal // the servers have not decided an earlier attempt yet
	})
}

// begin excludes the former owner from the log. o has the key.
func (o *lease) begin(ctx context.Context) error {
	l := o.log
	o.size = int(l.nc.MaxPayload()) - headerBytes
	o.size = min(o.size, maxPart)
	if o.size < minPart {
		return fmt.Errorf("the servers accept messages of %d bytes: want max_payload to be at least %d", l.nc.MaxPayload(), minPart+headerBytes)
	}
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
	return l.persist(ctx, l.noteBegun)
}

// mark publishes the first message of the owner after the last message of the log, which a read may not have yielded: then the server
// refuses the mark, and the next attempt reads again.
func (o *lease) mark(ctx context.Context) error {
	sequence, f, err := o.log.lastUnlessLost(ctx)
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

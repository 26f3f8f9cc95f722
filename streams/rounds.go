package streams

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/backoff"
)

const (
	// noticeDelay is the time after which the alarm repeats the notices of an append whose round an eviction or a crash has ended.
	noticeDelay = time.Second
	// noticeRetry is the first time after which the alarm repeats notices that a subscription did not accept, and maxNoticeRetry the
	// last one.
	noticeRetry, maxNoticeRetry = 10 * time.Second, 5 * time.Minute
	// promptTimeout and noticeTimeout bound the time of the calls of a round, and noticeTimeout that of a claim that waits for a notice.
	promptTimeout, noticeTimeout = 500 * time.Millisecond, 5 * time.Second
	// maxNotices bounds the concurrent calls of a round, and maxHostNotices those of a host.
	maxNotices, maxHostNotices = 16, 256
)

// lateness is a kind of round. A subscription is late in an incarnation of the stream from a notice that it did not accept until one that
// it accepts. The others do not wait for it: it has rounds of its own, with more time, which the alarm repeats.
type lateness int

const (
	prompt lateness = iota
	late
)

// beginRound begins a round when the writes of this event are durable, unless one of its kind is in progress. If the object has too many
// tasks, the alarm begins it.
func (s *Stream) beginRound(ctx context.Context, kind lateness) {
	if s.rounds[kind] {
		return
	}
	s.rounds[kind] = s.state.Go(ctx, "notices", func(ctx context.Context) error { return s.round(ctx, kind) }) == nil
}

// announce begins a round for an append that has written notices, and lets claims wait for it.
func (s *Stream) announce(ctx context.Context, p *properties) {
	if len(s.subscribers) == 0 {
		return
	}
	path, tail := hashOf(s.state.ID().Name), p.tail().String()
	for _, to := range s.subscribers {
		s.directory.expect(to.id, path, tail)
	}
	s.beginRound(ctx, prompt)
}

// resume begins a round in the first event of an incarnation if notices are left. An outbox that cannot be read is an error of the next
// append, and prevents no read.
func (s *Stream) resume(ctx context.Context) {
	if s.resumed {
		return
	}
	s.resumed = true
	if box, err := s.outbox(ctx); err == nil && len(box.Notices) > 0 {
		s.beginRound(ctx, prompt)
	}
}

// round is the event of a round. It begins and ends with the turn.
func (s *Stream) round(ctx context.Context, kind lateness) error {
	for {
		again, err := s.pass(ctx, kind)
		if errors.Is(err, dohost.ErrFenced) {
			return err // the fields are not this event's any more
		}
		if again && err == nil {
			continue
		}
		s.rounds[kind] = false
		if err == nil {
			err = s.keepAlarm(ctx)
		}
		return err
	}
}

// pass sends the notices of a kind of round once, and reports whether to do so again. It gives up the turn.
func (s *Stream) pass(ctx context.Context, kind lateness) (again bool, err error) {
	p, err := s.load(ctx) // before the outbox: it may give up the turn
	if err != nil {
		return false, err
	}
	box, err := s.outbox(ctx)
	if err != nil {
		return false, err
	}
	sent := slices.DeleteFunc(slices.Clone(box.Notices), func(n notice) bool { return s.late[n.ID] != (kind == late) })
	if len(sent) == 0 {
		return false, nil
	}
	tail, limit := p.tailOrNone(), promptTimeout
	if kind == late {
		limit = noticeTimeout
	}
	accepted, err := s.sendAll(ctx, sent, tail, limit)
	if err != nil {
		return false, err
	}
	left, err := s.deleteAccepted(ctx, sent, accepted, tail)
	if err != nil {
		return false, err
	}
	again = slices.ContainsFunc(left, func(n notice) bool { return !s.late[n.ID] })
	switch {
	case kind == prompt && slices.Contains(accepted, false):
		s.beginRound(ctx, late)
	case kind == late && again: // the stream has changed during the call
		s.beginRound(ctx, prompt)
		again = false
	}
	return again, nil
}

// tailOrNone returns the tail; empty: there is no stream.
func (p *properties) tailOrNone() string {
	if p == nil {
		return ""
	}
	return p.tail().String()
}

// sendAll calls the subscriptions of notices, and reports those that have accepted theirs in time. It gives up the turn.
func (s *Stream) sendAll(ctx context.Context, list []notice, tail string, limit time.Duration) (accepted []bool, err error) {
	accepted = make([]bool, len(list))
	err = dohost.Await(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		var calls sync.WaitGroup
		defer calls.Wait()
		slots := make(chan struct{}, maxNotices)
		for i, n := range list {
			slots <- struct{}{}
			select {
			case s.directory.calls <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			calls.Go(func() {
				defer func() { <-s.directory.calls; <-slots }()
				accepted[i] = s.send(ctx, n, tail) == nil
			})
		}
		return nil
	})
	return accepted, err
}

// send sends a notice to its subscription.
func (s *Stream) send(ctx context.Context, n notice, tail string) error {
	in := &noticeRequest{Path: s.state.ID().Name, Instance: n.Instance, Deleted: n.Deleted, From: n.From, Tail: tail}
	return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
		known, err := dohost.Call(ctx, Subscriptions.Get(s.state, n.ID), (*Subscription).notice, in)
		switch {
		case err != nil:
			return err
		case known:
			s.directory.arrived(n.ID, hashOf(in.Path), tail)
		default:
			s.directory.remove(n.ID, n.Instance)
		}
		return nil
	})
}

// deleteAccepted deletes the notices that were accepted, unless the stream has changed since, and returns those that a round has to send. There
// are none if they cannot be deleted: the alarm tries again.
func (s *Stream) deleteAccepted(ctx context.Context, sent []notice, accepted []bool, tail string) (left []notice, err error) {
	p, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	box, err := s.outbox(ctx)
	if err != nil {
		return nil, err
	}
	lateNow := map[string]bool{}
	for _, n := range box.Notices {
		i := slices.IndexFunc(sent, func(m notice) bool { return m.ID == n.ID })
		done := i >= 0 && accepted[i] && sent[i] == n && p.tailOrNone() == tail
		if !done {
			left = append(left, n)
		}
		if i >= 0 && !accepted[i] || i < 0 && s.late[n.ID] {
			lateNow[n.ID] = true
		}
	}
	s.late = lateNow
	switch {
	case len(left) == len(box.Notices):
		return left, nil
	case len(left) == 0 && p == nil: // nothing remains of a deleted stream
		if err := s.state.DeleteAlarm(ctx); err != nil {
			return nil, err
		}
		_, err := s.state.Storage().Delete(ctx, outboxKey)
		return nil, err
	}
	if dohost.PutNoWait(ctx, s.state.Storage(), outboxKey, outbox{left, box.Retries}) != nil {
		return nil, nil
	}
	return left, nil
}

// keepAlarm sets the alarm for notices that are left, unless it is set: it may be parked.
func (s *Stream) keepAlarm(ctx context.Context) error {
	box, err := s.outbox(ctx)
	if err != nil || len(box.Notices) == 0 {
		return err
	}
	if _, set, err := s.state.GetAlarm(ctx); err != nil || set {
		return err
	}
	return s.retryAt(ctx, box, time.Now().Add(noticeRetry))
}

// retryAt sets the alarm for the notices that are left.
func (s *Stream) retryAt(ctx context.Context, box outbox, at time.Time) error {
	p, ok, err := dohost.Get[properties](ctx, s.state.Storage(), propertiesKey)
	if err != nil {
		return err
	}
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		if err := dohost.Put(ctx, s.state.Storage(), outboxKey, box); err != nil {
			return err
		}
		if !ok {
			return s.state.SetStartAlarm(ctx, at)
		}
		if p.Notify = at; !p.expired() {
			return s.save(ctx, &p, time.Time{})
		}
		if err := dohost.Put(ctx, s.state.Storage(), propertiesKey, p); err != nil {
			return err
		}
		return s.state.SetStartAlarm(ctx, at) // the round deletes the stream
	})
}

// alarm begins the deletion of an expired stream, or a round, or waits for a deadline that has moved. It does not run during either of
// them: the host would take an alarm that runs at the end of each of several processes for their cause. So it also sets the alarm that
// repeats them, in its own batch.
func (s *Stream) alarm(ctx context.Context, _ dohost.AlarmInfo) error {
	p, ok, err := dohost.Get[properties](ctx, s.state.Storage(), propertiesKey)
	if err != nil {
		return err
	}
	box, err := s.outbox(ctx)
	if err != nil {
		return err
	}
	switch {
	case len(box.Notices) > 0:
		s.beginRound(ctx, prompt)
		if len(s.late) > 0 {
			s.beginRound(ctx, late)
		}
		next := time.Now().Add(backoff.Delay(box.Retries, noticeRetry, maxNoticeRetry))
		box.Retries++
		return s.retryAt(ctx, box, next)
	case !ok:
		return nil
	case p.expired():
		err := s.state.Go(ctx, "expire", func(ctx context.Context) error {
			_, err := s.load(ctx)
			return err
		})
		if err == nil || errors.Is(err, dohost.ErrOverloaded) {
			err = s.state.SetAlarm(ctx, time.Now().Add(noticeRetry))
		}
		return err
	}
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		p.Notify = time.Time{}
		return s.save(ctx, &p, time.Time{})
	})
}

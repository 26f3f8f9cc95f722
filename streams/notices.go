package streams

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dohost/dohost"
)

// noticesKey is the key of the list of notices.
const noticesKey = "notices"

const (
	// noticeDelay is the time after which the alarm repeats the notices of an append that a crash has interrupted.
	noticeDelay = time.Second
	// noticeRetry is the time after which the alarm repeats notices that a subscription did not accept.
	noticeRetry = 10 * time.Second
	// noticeTimeout bounds the time that an append waits for subscriptions.
	noticeTimeout = 5 * time.Second
	// maxNotices bounds the concurrent calls of subscriptions.
	maxNotices = 16
)

// notice is a change of the stream that a subscription may not know yet.
//
// An append and its notices are one batch, which also sets the alarm. The event of the append then calls the subscriptions and deletes
// the notices, before its response leaves: when a client has the response, each subscription that has answered in time has pending work.
// After a crash in between, the alarm repeats the calls. A deleted stream has no rows but its notices.
type notice struct {
	ID, Instance string // of the subscription
	Deleted      string // the tail of the stream that was deleted; empty: none was
	From         string // the offset before the first append since the last notice; empty: there was none
}

// note adds the notices of an append that begins at the tail, and lets the alarm repeat them. It needs a transaction.
func (s *Stream) note(ctx context.Context, p *properties) error {
	from := p.tail().String()
	list, err := s.change(ctx, func(n *notice) bool {
		if n.From != "" {
			return false
		}
		n.From = from
		return true
	})
	if now := time.Now(); list != nil && p.Notify.Before(now) {
		p.Notify = now.Add(noticeDelay)
	}
	return err
}

// remove deletes the stream, whose subscriptions must be known. An error means that nothing is deleted.
func (s *Stream) remove(ctx context.Context, p *properties) error {
	if err := s.changed(ctx); err != nil {
		return err
	}
	list, err := s.noteDeletion(ctx, p.tail().String()) // a full disk refuses the notices before anything is deleted
	if err != nil {
		return err
	}
	if err = s.state.Storage().DeleteAll(ctx); list == nil {
		return err
	}
	if err == nil {
		err = dohost.Put(ctx, s.state.Storage(), noticesKey, list)
	}
	if err == nil {
		err = s.state.SetAlarm(ctx, time.Now().Add(noticeDelay))
	}
	if err != nil {
		return s.state.Abort(ctx, err, nil) // DeleteAll is not possible in a transaction
	}
	return nil
}

// noteDeletion writes the notices of a deletion, and returns them. There are none without subscriptions.
func (s *Stream) noteDeletion(ctx context.Context, tail string) ([]notice, error) {
	return s.change(ctx, func(n *notice) bool {
		n.Deleted, n.From = tail, ""
		return true
	})
}

// change applies a function to the notice of each subscription of the stream, and returns the list; nil: there are no subscriptions.
func (s *Stream) change(ctx context.Context, set func(*notice) bool) ([]notice, error) {
	s.subscribers, s.version = s.directory.match(s.state.ID().Name, s.version, s.subscribers)
	if len(s.subscribers) == 0 {
		return nil, nil
	}
	list, err := s.notices(ctx)
	if err != nil {
		return nil, err
	}
	list = slices.Clone(list)
	changed := false
	for _, to := range s.subscribers {
		i := slices.IndexFunc(list, func(n notice) bool { return n.ID == to.id })
		if i < 0 {
			i = len(list)
			list = append(list, notice{ID: to.id, Instance: to.instance})
		}
		if list[i].Instance != to.instance {
			list[i] = notice{ID: to.id, Instance: to.instance}
		}
		changed = set(&list[i]) || changed
	}
	if changed {
		err = dohost.Put(ctx, s.state.Storage(), noticesKey, list)
	}
	return list, err
}

func (s *Stream) notices(ctx context.Context) ([]notice, error) {
	list, _, err := dohost.Get[[]notice](ctx, s.state.Storage(), noticesKey)
	return list, err
}

// notify calls the subscriptions that the stream has notices for, and reports whether notices remain. It gives up the turn. A
// subscription that fails is called again by the alarm, which the batch of the notices has set: no error of a call is an error of notify.
func (s *Stream) notify(ctx context.Context) (remain bool, err error) {
	p, err := s.load(ctx) // before the list: it may give up the turn
	if err != nil {
		return false, err
	}
	list, err := s.notices(ctx)
	if err != nil || len(list) == 0 {
		return false, err
	}
	tail := ""
	if p != nil {
		tail = p.tail().String()
	}
	accepted := make([]bool, len(list))
	err = dohost.Await(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, noticeTimeout)
		defer cancel()
		var calls sync.WaitGroup
		slots := make(chan struct{}, maxNotices)
		for i, n := range list {
			slots <- struct{}{}
			calls.Go(func() {
				defer func() { <-slots }()
				accepted[i] = s.send(ctx, n, tail) == nil
			})
		}
		calls.Wait()
		return nil
	})
	if err != nil {
		return false, err
	}
	return s.settle(ctx, list, accepted, tail)
}

// send sends a notice to its subscription.
func (s *Stream) send(ctx context.Context, n notice, tail string) error {
	in := &noticeRequest{Path: s.state.ID().Name, Instance: n.Instance, Deleted: n.Deleted, From: n.From, Tail: tail}
	return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
		known, err := dohost.Call(ctx, Subscriptions.Get(s.state.LocateHost(), n.ID), (*Subscription).notice, in)
		if err == nil && !known {
			s.directory.remove(n.ID, n.Instance)
		}
		return err
	})
}

// settle deletes the notices that were accepted, unless the stream has changed since: then the event of that change calls again. Losing
// the deletion costs a repetition, so nothing waits for it.
func (s *Stream) settle(ctx context.Context, sent []notice, accepted []bool, tail string) (remain bool, err error) {
	p, err := s.load(ctx)
	if err != nil {
		return false, err
	}
	list, err := s.notices(ctx)
	if err != nil {
		return false, err
	}
	if p != nil && p.tail().String() != tail || p == nil && tail != "" {
		return len(list) > 0, nil
	}
	left := make([]notice, 0, len(list))
	for _, n := range list {
		if i := slices.Index(sent, n); i < 0 || !accepted[i] {
			left = append(left, n)
		}
	}
	if len(left) == len(list) {
		return len(left) > 0, nil
	}
	if len(left) == 0 && p == nil {
		_, err := s.state.Storage().Delete(ctx, noticesKey) // nothing remains of a deleted stream
		return false, err
	}
	if dohost.PutNoWait(ctx, s.state.Storage(), noticesKey, left) != nil {
		return true, nil // the append has succeeded, and the alarm tries again
	}
	return len(left) > 0, nil
}

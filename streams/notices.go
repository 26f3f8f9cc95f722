package streams

import (
	"context"
	"slices"
	"time"

	"github.com/dohost/dohost"
)

// outboxKey is the key of the outbox.
const outboxKey = "notices"

// outbox is the row of a stream's notices.
type outbox struct {
	Notices []notice
	Retries int // by the alarm since the last append that has added a notice
}

// notice is a change of the stream that a subscription may not know yet: appends since From, and before them a deletion.
//
// The order of an append to a stream with subscriptions is:
//
//  1. The event of the append writes the data, the notices and the alarm in one batch.
//  2. When the batch is durable, its response leaves and a round begins. The response waits for no subscription.
//  3. A round calls the subscriptions outside of the turn, each with the newest tail. It repeats until only the notices that a
//     subscription did not accept are left.
//  4. An event that follows the acceptance deletes a notice, if the stream is as it was when the call began. Losing the deletion
//     costs a repetition, so nothing waits for it.
//  5. The alarm begins a round for the notices that are left, after an eviction or a crash too. The delays between its rounds double.
//
// A notice exists until its subscription has accepted the change. So an end of the incarnation at any point repeats a call, and loses
// none. A subscription has at most one notice of a stream: appends while one is left write none, and add no call.
//
// Each incarnation begins a round with its first event if notices are left, and a round that leaves some sets the alarm unless it is set:
// a parked alarm keeps no notice for longer than until the next request for the stream.
//
// A deleted stream has no rows but its outbox.
type notice struct {
	ID, Instance string // of the subscription
	Deleted      string // the tail of the stream that was deleted; empty: none was
	From         string // the offset before the first append since the last notice; empty: there was none
}

// note adds the notices of an append that begins at the tail, and lets the alarm repeat them. It needs a transaction.
func (s *Stream) note(ctx context.Context, p *properties) error {
	from := p.tail().String()
	box, err := s.change(ctx, func(n *notice) bool {
		if n.From != "" {
			return false
		}
		n.From = from
		return true
	})
	if err != nil || box == nil {
		return err
	}
	// The subscriptions that are late wait for their next retry.
	waits := !slices.ContainsFunc(s.subscribers, func(to *subscriber) bool { return !s.late[to.id] })
	now := time.Now()
	if latest := now.Add(noticeDelay); p.Notify.Before(now) || !waits && p.Notify.After(latest) {
		p.Notify = latest
	}
	return nil
}

// remove deletes the stream, whose subscriptions must be known. An error means that nothing is deleted: on a full disk, a stream with
// subscriptions stays, since they would not learn of its deletion.
func (s *Stream) remove(ctx context.Context, p *properties) error {
	if err := s.changed(ctx); err != nil {
		return err
	}
	box, err := s.noteDeletion(ctx, p.tail().String()) // a full disk refuses the notices before anything is deleted
	if err != nil {
		return err
	}
	if err = s.state.Storage().DeleteAll(ctx); box == nil {
		return err
	}
	if err == nil {
		err = dohost.Put(ctx, s.state.Storage(), outboxKey, *box)
	}
	if err == nil {
		err = s.state.SetStartAlarm(ctx, time.Now().Add(noticeDelay))
	}
	if err != nil {
		return s.state.Abort(ctx, err, nil) // DeleteAll is not possible in a transaction
	}
	s.beginRound(ctx, prompt)
	return nil
}

// noteDeletion writes the notices of a deletion, and returns the outbox. It is nil without subscriptions.
func (s *Stream) noteDeletion(ctx context.Context, tail string) (*outbox, error) {
	return s.change(ctx, func(n *notice) bool {
		n.Deleted, n.From = tail, ""
		return true
	})
}

// change applies a function to the notice of each subscription of the stream, and returns the outbox; nil: there are no subscriptions.
func (s *Stream) change(ctx context.Context, set func(*notice) bool) (*outbox, error) {
	s.subscribers, s.version = s.directory.match(s.state.ID().Name, s.version, s.subscribers)
	if len(s.subscribers) == 0 {
		return nil, nil
	}
	box, err := s.outbox(ctx)
	if err != nil {
		return nil, err
	}
	list := slices.Clone(box.Notices)
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
		box = outbox{Notices: list}
		err = dohost.Put(ctx, s.state.Storage(), outboxKey, box)
	}
	return &box, err
}

func (s *Stream) outbox(ctx context.Context) (outbox, error) {
	box, _, err := dohost.Get[outbox](ctx, s.state.Storage(), outboxKey)
	return box, err
}

package streams

import (
	"context"
	"time"

	"github.com/dohost/dohost"
)

// maxExpected bounds the streams whose notices a subscription expects.
const maxExpected = 64

// expected are the notices that are on their way to a subscription, in memory, so that a claim after the response to an append finds its
// work: a claim that would find none waits for them (awaitNotices). An append enters its tail in its event, before its response leaves. The
// stream removes it when the notice is durable. A claim waits at most noticeTimeout after the last append for a late or lost notice.
type expected struct {
	notices map[uint64]expectedNotice // by the hash of the stream's path
	arrived chan struct{}             // closed by the next arrival; nil: no claim waits for it
}

// expectedNotice is a notice that is on its way.
type expectedNotice struct {
	tail  string
	until time.Time
}

// expect enters a notice. A subscription that expects many of them has work when the first one arrives.
func (d *directory) expect(id string, path uint64, tail string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.findLocked(id); !known {
		return
	}
	e := d.expected[id]
	if e == nil {
		e = &expected{notices: map[uint64]expectedNotice{}}
		d.expected[id] = e
	}
	if _, found := e.notices[path]; found || len(e.notices) < maxExpected {
		e.notices[path] = expectedNotice{tail, time.Now().Add(noticeTimeout)}
	}
}

// arrived removes a notice, unless a later append has entered its tail.
func (d *directory) arrived(id string, path uint64, tail string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.expected[id]
	if e == nil {
		return
	}
	if n, ok := e.notices[path]; ok && n.tail <= tail {
		delete(e.notices, path)
	}
	if e.arrived != nil {
		close(e.arrived)
		e.arrived = nil
	}
}

// expects returns how long a subscription expects notices, and a channel that the next arrival closes; zero: it expects none.
func (d *directory) expects(id string) (wait time.Duration, arrived <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.expected[id]
	if e == nil {
		return 0, nil
	}
	for path, n := range e.notices {
		left := time.Until(n.until)
		if left <= 0 {
			delete(e.notices, path)
		}
		wait = max(wait, left)
	}
	if wait > 0 && e.arrived == nil {
		e.arrived = make(chan struct{})
	}
	return wait, e.arrived
}

// awaitNotices waits until the subscription has a wake in flight, or expects no notice. It gives up the turn.
func (s *Subscription) awaitNotices(ctx context.Context) (*config, *wake, error) {
	for {
		c, w, err := s.load(ctx)
		if err != nil || c == nil || w.ID != "" {
			return c, w, err
		}
		wait, arrived := s.directory.expects(s.state.ID().Name)
		if wait <= 0 {
			return c, w, nil
		}
		err = dohost.Await(ctx, func(ctx context.Context) error {
			select {
			case <-arrived:
				return nil
			case <-time.After(wait):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		if err != nil {
			return nil, nil, err
		}
	}
}

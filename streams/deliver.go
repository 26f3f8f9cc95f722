package streams

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/backoff"
)

const (
	firstRetry, maxRetry = time.Second, time.Minute
	// linger is how long a delivery waits for the response of a webhook whose wake has ended.
	linger = 2 * time.Second
	// maxDelivery bounds a request to a webhook, whose worker may extend its lease.
	maxDelivery = 10 * time.Minute
	// firstCheck and maxCheck bound the time after which the alarm looks for a delivery that an eviction has ended: it is the age of the
	// delivery.
	firstCheck, maxCheck = time.Second, 5 * time.Second
)

func retryDelay(failures int, instance string) time.Duration {
	return backoff.Jitter(backoff.Delay(failures-1, firstRetry, maxRetry), backoff.Share(instance))
}

// delivery is a request to a webhook. It ends with the lease of its wake, and shortly after the wake. A nil delivery means that there is no delivery.
//
// It is an event of its own, which the alarm begins, and no part of a run of the alarm: the host would take an alarm that runs at the end of
// each of several processes for their cause. When the incarnation ends, the alarm of the next one delivers the wake again.
type delivery struct {
	wake  string // its ID
	began time.Time

	mu    sync.Mutex
	until time.Time
	timer *time.Timer // nil: the request has not begun
}

// start begins the request, which cancel ends.
func (d *delivery) start(cancel func()) (stop func() bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer = time.AfterFunc(time.Until(d.until), cancel)
	return d.timer.Stop
}

func (d *delivery) extend(lease time.Duration) {
	if d != nil {
		d.endAfter(min(lease, maxDelivery-time.Since(d.began)))
	}
}

func (d *delivery) end() {
	if d != nil {
		d.endAfter(linger)
	}
}

func (d *delivery) endAfter(t time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until = time.Now().Add(t)
	if d.timer != nil {
		d.timer.Reset(t)
	}
}

// alarm does one thing that is due, and sets the alarm for the next one: the time of a run is bounded, and the host counts one that is too
// long as a failure. There is at most one delivery at a time.
func (s *Subscription) alarm(ctx context.Context, _ dohost.AlarmInfo) error {
	c, w, err := s.load(ctx)
	if err != nil || c == nil {
		return err
	}
	now := time.Now()
	switch {
	case w.Scan || w.Unread:
		err = s.fill(ctx, c, w)
	case w.expired(now):
		err = dohost.Transaction(ctx, func(ctx context.Context) error { return s.expire(ctx, c, w) })
	case w.ID == "" || w.Sent:
	case s.delivery != nil && s.delivery.wake == w.ID:
		w.Next = now.Add(min(max(now.Sub(s.delivery.began), firstCheck), maxCheck))
		err = dohost.Transaction(ctx, func(ctx context.Context) error { return s.save(ctx, w) })
	case s.delivery != nil:
		return s.arm(ctx, now.Add(linger)) // the end of the delivery sets an earlier time
	case now.Before(w.Next) && w.Lease.IsZero():
	case c.Type == typeWebhook:
		err = s.beginDelivery(ctx, c, w)
	default:
		err = s.appendWake(ctx, c, w)
	}
	if err != nil {
		return err
	}
	if c, w, err = s.load(ctx); err != nil || c == nil {
		return err
	}
	return s.arm(ctx, w.due()) // an alarm that has fired is not set any more
}

// attempt is the result of an attempt to deliver a wake.
type attempt struct {
	failure error
	done    bool   // the worker has responded that it is done
	links   []link // that were in the wake
}

// recordAttempt records the result of an attempt. It needs a transaction.
func (s *Subscription) recordAttempt(ctx context.Context, c *config, w *wake, a attempt) error {
	switch {
	case w.expired(time.Now()):
		return s.expire(ctx, c, w)
	case a.failure != nil && w.Sent:
		return nil // a worker has the wake, although its response is lost
	case a.failure != nil:
		w.failed(c.Instance)
		s.state.Report(ctx, "subscription:undelivered", slog.Any("err", a.failure), slog.Int("failures", w.Failures))
		return s.save(ctx, w)
	case !a.done:
		w.Sent, w.Next = true, time.Time{}
		return s.save(ctx, w)
	}
	w.renew(c.Lease)
	for _, delivered := range a.links {
		row, ok, err := links.Get(ctx, s.state.Storage(), delivered.Path)
		if err != nil {
			return err
		}
		if l := row.Value; ok && l.Moved != w.Generation && l.Acked < delivered.Tail {
			l.Acked, l.Fresh = delivered.Tail, false
			if err := s.put(ctx, l); err != nil {
				return err
			}
		}
	}
	_, err := s.finish(ctx, w)
	return err
}

// streamInfo is a stream in a wake.
type streamInfo struct {
	Path     string `json:"path"`
	LinkType string `json:"link_type"`
	Acked    string `json:"acked_offset"`
	Tail     string `json:"tail_offset"`
	Pending  bool   `json:"has_pending"`
}

func (l *link) info() streamInfo {
	i := streamInfo{l.Path, "glob", l.Acked, l.Tail, l.Since != 0}
	if l.Explicit {
		i.LinkType = "explicit"
	}
	if l.Acked == "" { // the tail is being read
		i.Acked, i.Tail = offsetStart, offsetStart
	}
	return i
}

func infosOf(list []link) []streamInfo {
	infos := make([]streamInfo, 0, len(list))
	for _, l := range list {
		infos = append(infos, l.info())
	}
	return infos
}

// beginDelivery begins an attempt to deliver the wake to the webhook.
func (s *Subscription) beginDelivery(ctx context.Context, c *config, w *wake) error {
	now := time.Now()
	w.Lease, w.Next = now.Add(c.Lease), now.Add(firstCheck)
	if err := dohost.Transaction(ctx, func(ctx context.Context) error { return s.save(ctx, w) }); err != nil {
		return err
	}
	d := &delivery{wake: w.ID, began: now, until: w.Lease}
	if err := s.state.Go(ctx, "webhook", func(ctx context.Context) error { return s.deliver(ctx, d) }); err != nil {
		return s.record(ctx, d.wake, attempt{failure: err})
	}
	s.delivery = d
	return nil
}

// deliver is the event of a delivery.
func (s *Subscription) deliver(ctx context.Context, d *delivery) error {
	a, err := s.post(ctx, d)
	if errors.Is(err, dohost.ErrFenced) {
		return err
	}
	s.delivery = nil
	if err != nil {
		return err // the alarm delivers again
	}
	return s.record(ctx, d.wake, a)
}

// post sends the wake to the webhook.
func (s *Subscription) post(ctx context.Context, d *delivery) (attempt, error) {
	c, w, err := s.load(ctx)
	if err != nil || c == nil || w.ID != d.wake { // it has ended
		return attempt{}, err
	}
	list, err := s.list(ctx)
	if err != nil {
		return attempt{}, err
	}
	body, err := json.Marshal(map[string]any{
		"subscription_id": s.state.ID().Name,
		"wake_id":         d.wake,
		"generation":      w.Generation,
		"streams":         infosOf(list),
		"callback_url":    c.Root + subscriptionPath + url.PathEscape(s.state.ID().Name) + "/callback",
		"callback_token":  tokenOf(w.Generation, c.TokenKey),
	})
	if err != nil {
		return attempt{}, err
	}
	result := attempt{links: list}
	err = dohost.Await(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer d.start(cancel)()
		key, err := s.directory.signingKey(ctx, hostOf(s.state))
		if err == nil {
			result.done, err = s.sender.send(ctx, c.URL, body, key)
		}
		result.failure = err
		return nil
	})
	return result, err
}

// record records the result of an attempt to deliver a wake, unless the wake has ended, and sets the alarm.
func (s *Subscription) record(ctx context.Context, sent string, a attempt) error {
	c, w, err := s.load(ctx)
	if err != nil || c == nil {
		return err
	}
	if w.ID != sent {
		return s.arm(ctx, w.due()) // the worker was faster than the response
	}
	return dohost.Transaction(ctx, func(ctx context.Context) error { return s.recordAttempt(ctx, c, w, a) })
}

// appendWake appends the wake to the wake stream. A crash may repeat it, and a worker that claims the wake twice is refused. The subscription
// is no idempotent producer: their number is bounded, and each new subscription would be one more.
func (s *Subscription) appendWake(ctx context.Context, c *config, w *wake) error {
	event, err := json.Marshal(map[string]any{
		"type":            "wake",
		"subscription_id": s.state.ID().Name,
		"stream":          w.Path,
		"generation":      w.Generation,
		"ts":              time.Now().UnixMilli(),
	})
	if err != nil {
		return err
	}
	sent := w.ID
	r := &appendRequest{ContentType: "application/json", Data: [][]byte{event}}
	var result appendResult
	err = dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) (err error) {
		result, err = dohost.Call(ctx, Streams.Get(s.state, c.WakeStream), (*Stream).append, r)
		return err
	})
	if err == nil && result.Outcome != appended {
		err = errWakeStream
	}
	return s.record(ctx, sent, attempt{failure: err})
}

var errWakeStream = errors.New("the wake stream does not exist, is closed, or is not of the type application/json")

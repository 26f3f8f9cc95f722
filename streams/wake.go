package streams

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// wake is the row of a subscription's wake. A subscription with pending work has a wake in flight:
//
//	idle ── pending work ──▶ unsent ── delivered ──▶ sent ── done, released, lease ended ──▶ idle
//	                            └────── claimed, or called back ──▶ sent
//
// The wake of a webhook has a lease from the beginning of each attempt to deliver it, and that of a pull-wake subscription while a worker
// has it. Each wake has the next generation and an ID of its own.
type wake struct {
	Generation uint64
	ID         string    // empty: idle
	Path       string    // of the stream that caused it
	Sent       bool      // a worker has it, or the event is in the wake stream
	Holder     string    // the worker of a pull-wake subscription
	Lease      time.Time // its end; zero: none
	Failures   int       // of deliveries, and ends of leases, since the last request of a worker
	Next       time.Time // of the next attempt to deliver; during one, of the next check that it runs
	Serial     uint64    // of the last link that has had pending work

	Scan    bool   // not all streams that exist have been compared with the pattern
	Scanned string // the last one that has
	Unread  bool   // some links may have no cursor
}

// immediately is an alarm's time in the past.
var immediately = time.Unix(0, 0)

// due returns the time of the alarm; zero: none.
func (w *wake) due() time.Time {
	switch {
	case w.Scan || w.Unread:
		return immediately
	case w.ID == "":
		return time.Time{}
	case w.Sent:
		return w.Lease
	case w.Next.IsZero():
		return immediately
	case !w.Lease.IsZero() && w.Lease.Before(w.Next):
		return w.Lease
	}
	return w.Next
}

// offered reports whether a worker may have the links of the wake.
func (w *wake) offered(c *config) bool {
	return w.ID != "" && (w.Holder != "" || c.Type == typeWebhook && (w.Sent || w.Failures > 0 || !w.Lease.IsZero()))
}

// expired reports whether the lease has ended.
func (w *wake) expired(now time.Time) bool { return !w.Lease.IsZero() && !now.Before(w.Lease) }

// begin begins a wake.
func (w *wake) begin(path string) {
	w.Generation++
	w.ID, w.Path, w.Sent = "w_"+rand.Text(), path, false
}

// renew renews the lease for a request of the worker that has the wake.
func (w *wake) renew(lease time.Duration) {
	w.Sent, w.Failures, w.Next, w.Lease = true, 0, time.Time{}, time.Now().Add(lease)
}

// failed records an attempt to deliver that has failed, or a lease that has ended without a request of its worker.
func (w *wake) failed(instance string) {
	w.Failures++
	w.Next, w.Lease = time.Now().Add(retryDelay(w.Failures, instance)), time.Time{}
}

// finish ends the wake. If there is pending work it begins the next one, and reports that.
func (s *Subscription) finish(ctx context.Context, w *wake) (next bool, err error) {
	w.ID, w.Path, w.Sent, w.Holder, w.Lease = "", "", false, "", time.Time{}
	pending, err := links.List(ctx, s.state.Storage(), &dohost.Query[link]{Index: "pending", Limit: 1})
	if err != nil {
		return false, err
	}
	if len(pending) > 0 {
		w.begin(pending[0].Key)
	}
	s.delivery.end()
	return len(pending) > 0, s.save(ctx, w)
}

// expire ends a wake whose lease has ended.
func (s *Subscription) expire(ctx context.Context, c *config, w *wake) error {
	if c.Type == typeWebhook {
		w.failed(c.Instance)
	}
	_, err := s.finish(ctx, w)
	return err
}

// noticeRequest is a notice of a stream to a subscription.
type noticeRequest struct {
	Path, Instance string
	Deleted        string // the tail of a deleted stream, before From; empty: none was deleted
	From           string // the offset before the first append that the subscription may not know of; empty: none
	Tail           string
}

// notice records that a stream has grown or was deleted, and begins a wake unless one is in flight. known is false if the subscription
// was deleted. A repeated notice changes nothing.
func (s *Subscription) notice(ctx context.Context, n *noticeRequest) (known bool, err error) {
	c, w, err := s.load(ctx)
	if err != nil || c == nil || c.Instance != n.Instance {
		return false, err
	}
	row, ok, err := links.Get(ctx, s.state.Storage(), n.Path)
	if err != nil {
		return false, err
	}
	old, l, moved := row.Value, row.Value, !ok
	if ok && n.Deleted != "" && l.Tail <= n.Deleted {
		l = link{Path: l.Path, Explicit: l.Explicit, Acked: offsetStart, Tail: offsetStart, Fresh: true, Moved: l.Moved}
		ok, moved = l.Explicit, true
	}
	if n.From != "" {
		if !ok {
			l = link{Path: n.Path, Acked: n.From, Tail: n.From, Fresh: true}
		}
		l.grow(n, w)
		l.Glob = l.Glob || c.pattern().matches(n.Path, strings.Split(n.Path, "/"))
	}
	if l == old {
		return true, nil
	}
	if w.offered(c) && (moved || l.Acked < old.Acked) {
		l.Moved = w.Generation
	}
	return true, dohost.Transaction(ctx, func(ctx context.Context) error {
		if !l.Glob && !l.Explicit {
			_, err := links.Delete(ctx, s.state.Storage(), n.Path)
			return err
		}
		if err := links.Put(ctx, s.state.Storage(), l); err != nil {
			return err
		}
		if l.Since != 0 && w.ID == "" {
			w.begin(n.Path)
		}
		return s.save(ctx, w)
	})
}

// grow applies a notice of data to a link.
func (l *link) grow(n *noticeRequest, w *wake) {
	if l.Acked == "" || l.Fresh && n.From < l.Acked {
		l.Acked = n.From
	}
	l.Tail = max(l.Tail, n.Tail)
	if l.Tail > l.Acked && l.Since == 0 {
		w.Serial++
		l.Since = w.Serial
	}
}

// refusal is an error of the protocol.
type refusal struct {
	status        int
	code, message string
	holder        string // of ALREADY_CLAIMED
	generation    uint64
}

func refused(status int, code, format string, args ...any) *refusal {
	return &refusal{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

func noSubscription() *refusal {
	return refused(http.StatusNotFound, "SUBSCRIPTION_NOT_FOUND", "there is no such subscription")
}

// ack is a cursor that a worker moves.
type ack struct {
	Stream, Offset string
}

// ackRequest is a request of the worker that has a wake.
type ackRequest struct {
	Type       string // of the subscription
	Token      string
	Wake       string
	Generation uint64
	Acks       []ack
	Done       bool // the wake ends
	Release    bool // by no work
}

// ackResult is the answer to an ackRequest.
type ackResult struct {
	Refusal  *refusal
	NextWake bool // the next wake is in flight
}

// ack moves cursors, and ends the wake or extends its lease. A refusal moves none of them.
func (s *Subscription) ack(ctx context.Context, r *ackRequest) (result ackResult, err error) {
	c, w, err := s.load(ctx)
	if err != nil {
		return ackResult{}, err
	}
	if refusal := r.check(c, w); refusal != nil {
		return ackResult{Refusal: refusal}, nil
	}
	err = dohost.Transaction(ctx, func(ctx context.Context) error {
		if result.Refusal, err = s.move(ctx, w, r.Acks); err != nil || result.Refusal != nil {
			return err
		}
		if w.renew(c.Lease); r.Done {
			result.NextWake, err = s.finish(ctx, w)
			return err
		}
		s.delivery.extend(c.Lease)
		return s.save(ctx, w)
	})
	return result, err
}

// check fences a request.
func (r *ackRequest) check(c *config, w *wake) *refusal {
	switch {
	case c == nil:
		return noSubscription()
	case c.Type != r.Type:
		return refused(http.StatusBadRequest, "INVALID_REQUEST", "the subscription is of the type %s", c.Type)
	}
	generation, ok := generationOf(r.Token, c.TokenKey)
	if !ok {
		return refused(http.StatusUnauthorized, "TOKEN_INVALID", "the bearer token is not one of this subscription")
	}
	if w.ID == "" || w.ID != r.Wake || w.Generation != r.Generation || w.Generation != generation {
		return refused(http.StatusConflict, "FENCED", "the wake has ended")
	}
	return nil
}

// move moves cursors forward, or none of them. It needs a transaction.
func (s *Subscription) move(ctx context.Context, w *wake, acks []ack) (*refusal, error) {
	moved := make([]link, 0, len(acks))
	for _, a := range acks {
		row, ok, err := links.Get(ctx, s.state.Storage(), a.Stream)
		if err != nil {
			return nil, err
		}
		_, bad := parseOffset(a.Offset)
		l := row.Value
		switch {
		case ok && bad == nil && l.Moved == w.Generation:
			continue
		case !ok:
			return refused(http.StatusConflict, "INVALID_OFFSET", "acks: %.64q is not a stream of the subscription", a.Stream), nil
		case bad != nil:
			return refused(http.StatusConflict, "INVALID_OFFSET", "acks: %.64q is not an offset", a.Offset), nil
		case a.Offset < l.Acked:
			return refused(http.StatusConflict, "INVALID_OFFSET", "acks: %q precedes the cursor %q", a.Offset, l.Acked), nil
		case a.Offset > l.Tail:
			return refused(http.StatusConflict, "INVALID_OFFSET", "acks: %q is after the tail %q", a.Offset, l.Tail), nil
		}
		if a.Offset > l.Acked { // no worker has seen the data before an ack at the cursor: a late notice may move it back
			l.Acked, l.Fresh = a.Offset, false
			moved = append(moved, l)
		}
	}
	for _, l := range moved {
		if err := s.put(ctx, l); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// put writes a link whose cursor a worker has moved. It ends the pending work if the cursor is at the tail.
func (s *Subscription) put(ctx context.Context, l link) error {
	if l.Acked >= l.Tail {
		l.Since = 0
	}
	return links.Put(ctx, s.state.Storage(), l)
}

// claimResult is the answer to a claim.
type claimResult struct {
	Refusal *refusal
	Wake    wake
	Token   string
	Links   []link
	Lease   time.Duration
}

// claim gives a worker the wake in flight of a pull-wake subscription.
func (s *Subscription) claim(ctx context.Context, worker string) (*claimResult, error) {
	c, w, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case c == nil:
		return &claimResult{Refusal: noSubscription()}, nil
	case c.Type != typePullWake:
		return &claimResult{Refusal: refused(http.StatusBadRequest, "INVALID_REQUEST", "the subscription is of the type %s", c.Type)}, nil
	case w.expired(time.Now()): // the alarm is late, or parked
		if err := dohost.Transaction(ctx, func(ctx context.Context) error { return s.expire(ctx, c, w) }); err != nil {
			return nil, err
		}
	}
	if c, w, err = s.awaitNotices(ctx); err != nil {
		return nil, err
	}
	switch {
	case c == nil:
		return &claimResult{Refusal: noSubscription()}, nil
	case w.Holder != "":
		r := refused(http.StatusConflict, "ALREADY_CLAIMED", "a worker has the wake")
		r.holder, r.generation = w.Holder, w.Generation
		return &claimResult{Refusal: r}, nil
	case w.ID == "":
		return &claimResult{Refusal: refused(http.StatusConflict, "NO_PENDING_WORK", "the subscription has no pending work")}, nil
	}
	w.renew(c.Lease)
	w.Holder = worker
	if err := dohost.Transaction(ctx, func(ctx context.Context) error { return s.save(ctx, w) }); err != nil {
		return nil, err
	}
	list, err := s.list(ctx)
	return &claimResult{Wake: *w, Token: tokenOf(w.Generation, c.TokenKey), Links: list, Lease: c.Lease}, err
}

// tokenOf returns the bearer token of the worker that has the wake of a generation.
func tokenOf(generation uint64, key []byte) string {
	text := binary.BigEndian.AppendUint64(nil, generation)
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(text))
}

// generationOf returns the generation of a token; ok is false for a text that is none of the key's tokens.
func generationOf(token string, key []byte) (generation uint64, ok bool) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(text) < 8 {
		return 0, false
	}
	generation = binary.BigEndian.Uint64(text)
	return generation, hmac.Equal([]byte(token), []byte(tokenOf(generation, key)))
}

package streams

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"time"

	"github.com/dohost/dohost"
)

// Subscriptions is the namespace of subscriptions. The name of an object is the ID that the client of the protocol has chosen.
const Subscriptions dohost.Namespace[Subscription] = "subscription"

// The types of subscriptions.
const (
	typeWebhook  = "webhook"
	typePullWake = "pull-wake"
)

const (
	minLease, defaultLease, maxLease = time.Second, 30 * time.Second, 10 * time.Minute

	// maxSubscriptions bounds the subscriptions of a host: a stream compares its path with each of them.
	maxSubscriptions = 1000
	// maxPerStream bounds the subscriptions of a stream by patterns, and those by name: an append costs a call of each.
	maxPerStream = 100
	// maxSegments bounds the segments of a pattern.
	maxSegments = 64
	// maxExplicit bounds the streams that a subscription names.
	maxExplicit = 1000
	// maxListed bounds the streams in a wake and in the description of a subscription. Those with pending work come first.
	maxListed = 1000
)

// Subscription is the object of a subscription: durable cursors in streams, and the wake of the worker that moves them. All of its state
// is in its storage:
//
//   - The row of the configuration exists if and only if the subscription does.
//   - The row of the wake has its generation, its lease and its delivery.
//   - Each link is a stream with its cursor. The index pending has those with data after the cursor.
//
// The generation grows with each wake and never decreases. The alarm is due when the row of the wake says so, since each batch that
// changes the row sets it (save). It begins deliveries, and ends leases.
type Subscription struct {
	state     *dohost.State
	directory *directory
	sender    *sender
	delivery  *delivery     // the request to the webhook; nil: none is in progress
	filling   chan struct{} // closed at the end of the present step of a backfill; nil: there is none
}

// config is the configuration of a subscription.
type config struct {
	Type        string
	Pattern     string
	Explicit    []string // sorted
	URL         string   // of a webhook
	WakeStream  string   // of a pull-wake subscription
	Lease       time.Duration
	Description string

	// Not compared when the client confirms the subscription.
	Request  string // identifies the request: its call may be repeated after it has created the subscription
	Root     string // the URL of all streams, with a slash at its end
	Created  time.Time
	Instance string // differs from that of a deleted subscription with this ID
	TokenKey []byte
}

// same reports whether a client has sent the same configuration twice.
func (c *config) same(d *config) bool {
	return c.Type == d.Type && c.Pattern == d.Pattern && slices.Equal(c.Explicit, d.Explicit) && c.URL == d.URL &&
		c.WakeStream == d.WakeStream && c.Lease == d.Lease && c.Description == d.Description
}

// link is a stream of a subscription. The offsets are texts whose order is that of the positions; offsetStart precedes them all.
type link struct {
	Path           string
	Glob, Explicit bool
	Acked          string // the cursor; empty: the tail at the time of the link, which has not been read yet
	Tail           string // of the stream, as far as it is known
	Since          uint64 // orders the links with pending work by the time when it began; zero: none
	Fresh          bool   // no worker has moved the cursor
	Moved          uint64 // the last generation whose worker has an older state of the link: the cursor moved back, or is of a deleted stream
}

var links = dohost.Collection[link]{
	Name: "links",
	Key:  func(l link) string { return l.Path },
	Indexes: []dohost.Index[link]{
		{Name: "pending", Of: func(l link) dohost.Key {
			if l.Since == 0 {
				return ""
			}
			return dohost.KeyOf(l.Since)
		}},
		{Name: "named", Of: func(l link) dohost.Key { return keyIf(l.Explicit) }},
		{Name: "new", Of: func(l link) dohost.Key { return keyIf(l.Acked == "") }},
	},
}

// keyIf is the key of an index in the order of the rows' keys, which are too long to be in it twice.
func keyIf(in bool) dohost.Key {
	if !in {
		return ""
	}
	return dohost.KeyOf(in)
}

const (
	configKey = "config"
	wakeKey   = "wake"
)

func newSubscription(ctx context.Context, st *dohost.State, sh *shared) (*Subscription, error) {
	s := &Subscription{state: st, directory: sh.directories.of(hostOf(st)), sender: sh.sender}
	c, ok, err := dohost.Get[config](ctx, st.Storage(), configKey)
	if err == nil && ok {
		err = s.publish(ctx, &c)
	}
	return s, err
}

// enter wakes the object, whose constructor enters the subscription into the directory.
func (s *Subscription) enter(context.Context) error { return nil }

// entry returns an entry without the streams that are named.
func (s *Subscription) entry(c *config) *subscriber {
	return &subscriber{id: s.state.ID().Name, instance: c.Instance, pattern: c.pattern(), explicit: map[uint64]bool{}}
}

// crowds reports whether a stream would have too many subscriptions with this one, which adds names.
func (s *Subscription) crowds(c *config, names []string) bool {
	e := s.entry(c)
	for _, path := range names {
		e.explicit[hashOf(path)] = true
	}
	return s.directory.crowded(e)
}

// publish enters the subscription into the directory.
func (s *Subscription) publish(ctx context.Context, c *config) error {
	e := s.entry(c)
	for row, err := range links.All(ctx, s.state.Storage(), &dohost.Query[link]{Index: "named"}) {
		if err != nil {
			return err
		}
		e.explicit[hashOf(row.Key)] = true
	}
	s.directory.put(e)
	return nil
}

func (s *Subscription) load(ctx context.Context) (*config, *wake, error) {
	c, ok, err := dohost.Get[config](ctx, s.state.Storage(), configKey)
	if err != nil || !ok {
		return nil, nil, err
	}
	w, _, err := dohost.Get[wake](ctx, s.state.Storage(), wakeKey)
	return &c, &w, err
}

// save writes the row of the wake, and sets the alarm. It needs a transaction.
func (s *Subscription) save(ctx context.Context, w *wake) error {
	if err := s.arm(ctx, w.due()); err != nil {
		return err
	}
	return dohost.Put(ctx, s.state.Storage(), wakeKey, *w)
}

// arm sets the alarm, unless it is set to that time; zero means none. A parked alarm is not set: its subscription continues with the next
// change.
func (s *Subscription) arm(ctx context.Context, at time.Time) error {
	if at.IsZero() {
		return s.state.DeleteAlarm(ctx)
	}
	now := time.Now()
	set, ok, err := s.state.GetAlarm(ctx)
	if err != nil || ok && (set.Equal(at) || !set.After(now) && !at.After(now)) {
		return err
	}
	return s.state.SetStartAlarm(ctx, at)
}

// subscribed is the result of create and describe. Not all fields of the config are in it.
type subscribed struct {
	Config  config
	Wake    wake
	Links   []link
	Created bool
	Signer  string // the ID of the key that signs deliveries to a webhook
	Refusal *refusal
}

// create creates the subscription, unless it exists, and links the streams that exist at their tails.
func (s *Subscription) create(ctx context.Context, want *config) (*subscribed, error) {
	if err := s.directory.load(ctx, hostOf(s.state)); err != nil {
		return nil, err
	}
	c, w, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	missing := c == nil
	created := missing || c.Request == want.Request
	switch {
	case missing && s.directory.count(s.state.ID().Name) >= maxSubscriptions:
		return &subscribed{Refusal: refused(http.StatusTooManyRequests, "TOO_MANY_SUBSCRIPTIONS", "the limit of a server is %d subscriptions", maxSubscriptions)}, nil
	case missing && s.crowds(want, want.Explicit):
		return &subscribed{Refusal: tooManyPerStream()}, nil
	case missing && want.Type == typeWebhook:
		if err := s.sender.checkURL(want.URL); err != nil {
			return &subscribed{Refusal: refused(http.StatusBadRequest, "WEBHOOK_URL_REJECTED", "webhook.url: %v", err)}, nil
		}
		err = s.insert(ctx, want)
	case missing:
		err = s.insert(ctx, want)
	case !c.same(want):
		return &subscribed{Refusal: refused(http.StatusConflict, "SUBSCRIPTION_ALREADY_EXISTS", "the subscription exists with another configuration")}, nil
	case c.Root != want.Root:
		c.Root = want.Root
		err = dohost.Put(ctx, s.state.Storage(), configKey, *c)
	}
	if err != nil {
		return nil, err
	}
	if created || w.Scan || w.Unread {
		if err := s.backfill(ctx); err != nil {
			return nil, err
		}
	}
	d, err := s.describe(ctx, struct{}{})
	if err != nil || d == nil { // it may have been deleted in the meantime
		return &subscribed{Refusal: noSubscription()}, err
	}
	d.Created = created
	return d, nil
}

func tooManyPerStream() *refusal {
	return refused(http.StatusTooManyRequests, "TOO_MANY_SUBSCRIPTIONS", "the limit of a stream is %d subscriptions that name it, and %d whose patterns have a path in common", maxPerStream, maxPerStream)
}

// insert writes the rows of a new subscription.
func (s *Subscription) insert(ctx context.Context, want *config) error {
	c := new(*want) // a call that is repeated has the same config
	c.Created, c.Instance = time.Now(), rand.Text()
	c.TokenKey = make([]byte, 32)
	_, _ = rand.Read(c.TokenKey) // never fails
	err := dohost.Transaction(ctx, func(ctx context.Context) error {
		for _, path := range c.Explicit {
			if err := links.Put(ctx, s.state.Storage(), link{Path: path, Explicit: true, Fresh: true}); err != nil {
				return err
			}
		}
		if err := dohost.Put(ctx, s.state.Storage(), configKey, *c); err != nil {
			return err
		}
		return s.save(ctx, &wake{Scan: c.Pattern != "", Unread: len(c.Explicit) > 0})
	})
	if err != nil {
		return err
	}
	return s.publish(ctx, c)
}

// describe returns the state of the subscription, or nil if it does not exist.
func (s *Subscription) describe(ctx context.Context, _ struct{}) (*subscribed, error) {
	c, _, err := s.load(ctx)
	if err != nil || c == nil {
		return nil, err
	}
	d := &subscribed{}
	if c.Type == typeWebhook {
		err := dohost.Await(ctx, func(ctx context.Context) error {
			key, err := s.directory.signingKey(ctx, hostOf(s.state))
			if err == nil {
				d.Signer = key.id
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	c, w, err := s.load(ctx)
	if err != nil || c == nil {
		return nil, err
	}
	d.Config, d.Wake = *c, *w
	d.Links, err = s.list(ctx)
	return d, err
}

// list returns links, those with pending work first.
func (s *Subscription) list(ctx context.Context) (list []link, err error) {
	pending, err := links.List(ctx, s.state.Storage(), &dohost.Query[link]{Index: "pending", Limit: maxListed})
	if err != nil {
		return nil, err
	}
	idle := &dohost.Query[link]{Limit: maxListed - len(pending), Where: func(l link) bool { return l.Since == 0 }}
	var others []dohost.Row[link]
	if idle.Limit > 0 {
		if others, err = links.List(ctx, s.state.Storage(), idle); err != nil {
			return nil, err
		}
	}
	for _, row := range slices.Concat(pending, others) {
		list = append(list, row.Value)
	}
	return list, nil
}

// delete deletes the subscription, if it exists.
func (s *Subscription) delete(ctx context.Context, _ struct{}) (struct{}, error) {
	c, _, err := s.load(ctx)
	if err != nil || c == nil {
		return struct{}{}, err
	}
	if err := s.state.Storage().DeleteAll(ctx); err != nil {
		return struct{}{}, err
	}
	s.delivery.end()
	// Until the deletion is durable, the streams must find the subscription.
	err = dohost.Await(ctx, func(context.Context) error { return nil })
	if err == nil {
		s.directory.remove(s.state.ID().Name, c.Instance)
	}
	return struct{}{}, err
}

package natslog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dohost/dohost/sharedlog"
)

// session is the lease that all leases of a node have in common. Its key has an expiry and is renewed; the keys of the owners name it.
type session struct {
	log  *Log   // whose bucket has the key
	name string // of the key; no other session has it
	data []byte // the value of the key

	sent    atomic.Pointer[moment] // of the last renewal that was acknowledged
	invalid atomic.Bool
	expiry  *time.Timer // calls lose at the deadline

	// Of the goroutine that renews the session.
	revision uint64 // of the key; 0 before it exists

	// Of a session with one lease. Others are renewed by a Table, and have none of them.
	cancel  context.CancelFunc
	renewed chan struct{} // closed when the renewals have ended

	// mu guards the rest. It is not held during I/O.
	mu     sync.Mutex
	lost   bool
	leases map[string]*lease   // by their owners; they have not ended
	ended  map[*lease]struct{} // their keys may name the session still
}

const (
	renewals = 3 // in a lease's time
	margin   = 500 * time.Millisecond
	// markTime is the time to live of a mark that ends a session. The mark has its effect when it is written.
	markTime = time.Second
)

// The kinds of sessions, in the names of their keys.
const (
	ofMember = "member" // a member of a cluster, with its record as the value
	ofLease  = "session"
)

var sessionName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}\.(` + ofMember + `|` + ofLease + `)\.[A-Z2-7]{26}$`)

// operation is the header that marks a deleted key for clients of buckets.
const (
	operation = "KV-Operation"
	deletion  = "DEL"
)

func (l *Log) newSession(kind string, data []byte) *session {
	return &session{
		log: l, name: l.cell + "." + kind + "." + rand.Text(), data: data, leases: map[string]*lease{}, ended: map[*lease]struct{}{},
	}
}

// key returns the last message of a key in the bucket, with the sequence 0 if there is none. The leader of the stream reads it. The
// message may be an old one: a former leader may answer.
func (l *Log) key(ctx context.Context, name string) (*jetstream.RawStreamMsg, error) {
	m, err := l.owners.GetLastMsgForSubject(ctx, keySubject(name))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return &jetstream.RawStreamMsg{}, nil
	}
	return m, err
}

func keySubject(name string) string { return "$KV.dohost." + name }

func isDeleted(m *jetstream.RawStreamMsg) bool { return m.Header.Get(operation) != "" }

// put writes a key whose last revision is known, and returns the next one. The key expires after the time to live, or never if that is 0.
func (l *Log) put(ctx context.Context, name string, data []byte, revision uint64, ttl time.Duration) (uint64, error) {
	return l.putMessage(ctx, &nats.Msg{Subject: keySubject(name), Data: data}, revision, ttl)
}

// deleteKey writes that a key is deleted, as put does.
func (l *Log) deleteKey(ctx context.Context, name string, revision uint64, ttl time.Duration) (uint64, error) {
	return l.putMessage(ctx, &nats.Msg{Subject: keySubject(name), Header: nats.Header{operation: {deletion}}}, revision, ttl)
}

func (l *Log) putMessage(ctx context.Context, m *nats.Msg, revision uint64, ttl time.Duration) (uint64, error) {
	options := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithRetryAttempts(0)}
	if ttl > 0 {
		options = append(options, jetstream.WithMsgTTL(ttl))
	}
	ack, err := l.js.PublishMsg(ctx, m, options...)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// endAbsent ends a session whose key does not exist, and reports whether the session has ended. The read is not the proof, since it may
// be old. The servers accept the mark only if the key does not exist, and refuse all renewals after it, since they expect a revision.
func (l *Log) endAbsent(ctx context.Context, name string) (ended bool, err error) {
	m, err := l.key(ctx, name)
	if err != nil || m.Sequence > 0 {
		return err == nil && isDeleted(m), err // nothing follows a mark but its expiry, so it may be an old one
	}
	_, err = l.deleteKey(ctx, name, 0, markTime)
	if isRefused(err) {
		return false, nil // the read was old, or another host has written the mark
	}
	return err == nil, err
}

// begin writes the key. If it fails, it may be called again. The node learns only from the answer to an attempt when the key was written, so a short attempt
// would never succeed on servers that need longer for a write.
func (s *session) begin(ctx context.Context) error {
	err := s.log.persistFrom(ctx, answerTime, func(ctx context.Context) error {
		sent, err := s.write(ctx, func(ctx context.Context) (uint64, error) {
			return s.log.put(ctx, s.name, s.data, s.revision, s.log.options.LeaseTime)
		})
		s.sent.Store(&sent)
		return err
	})
	if err != nil {
		return err
	}
	s.expiry = time.AfterFunc(s.left(), s.lose)
	return nil
}

// write repeats a conditional write of the key until the servers decide it, and returns when the accepted attempt was sent.
func (s *session) write(ctx context.Context, attempt func(context.Context) (uint64, error)) (sent moment, err error) {
	for {
		sent = now()
		revision, err := attempt(ctx)
		if err == nil {
			s.revision = revision
			return sent, nil
		}
		if !isRefused(err) {
			return sent, err
		}
		if err := s.find(ctx); err != nil {
			return sent, err
		}
	}
}

// find finds the revision of the key after a refusal: the answer to an earlier attempt may have been lost. ErrFenced means that the
// session has ended.
func (s *session) find(ctx context.Context) error {
	m, err := s.log.key(ctx, s.name)
	switch {
	case err != nil:
		return err
	case isDeleted(m) || m.Sequence == 0 && s.revision > 0:
		return fmt.Errorf("the key %s has expired: %w", s.name, sharedlog.ErrFenced)
	case m.Sequence <= s.revision: // refused because of an earlier attempt that the servers have not decided yet
		return sleep(ctx, retryTime)
	}
	s.revision = m.Sequence
	return nil
}

// run renews a session with one lease until it ends.
func (s *session) run(ctx context.Context) {
	defer close(s.renewed)
	ticker := time.NewTicker(s.log.options.LeaseTime / renewals)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := s.renew(ctx); errors.Is(err, sharedlog.ErrFenced) {
			return
		}
	}
}

func (s *session) endRenewals() {
	s.cancel()
	<-s.renewed
}

// renew extends the session if the servers acknowledge a new revision of the key. An error other than ErrFenced ends no session.
func (s *session) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.log.options.LeaseTime/renewals)
	defer cancel()
	sent, err := moment{}, s.checkTime() // it must not be valid again
	if err == nil {
		sent, err = s.write(ctx, func(ctx context.Context) (uint64, error) {
			return s.log.put(ctx, s.name, s.data, s.revision, s.log.options.LeaseTime)
		})
	}
	if err == nil {
		err = s.checkTime()
	}
	if errors.Is(err, sharedlog.ErrFenced) {
		s.lose()
	}
	if err != nil {
		return err
	}
	s.sent.Store(&sent)
	s.expiry.Reset(s.left())
	s.freeEnded(ctx)
	return nil
}

// checkTime returns an error if the session has ended.
func (s *session) checkTime() error {
	if s.valid() {
		return nil
	}
	return fmt.Errorf("the key %s was not renewed in time: %w", s.name, sharedlog.ErrFenced)
}

// freeEnded frees the cells whose leases have ended without a release that the servers have acknowledged. The next renewal does not wait
// for it.
func (s *session) freeEnded(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.log.options.LeaseTime/renewals/2)
	defer cancel()
	s.mu.Lock()
	ended := slices.Collect(maps.Keys(s.ended))
	s.mu.Unlock()
	for _, o := range ended {
		if err := s.free(ctx, o); err != nil {
			s.log.options.Logger.Warn("a cell could not be released; the next renewal repeats it", "err", err)
			return
		}
	}
}

// free deletes the key of a lease that has ended, so that another host can acquire its log.
func (s *session) free(ctx context.Context, o *lease) error {
	s.mu.Lock()
	_, ended := s.ended[o]
	s.mu.Unlock()
	if !ended || !s.valid() {
		return nil // it is free, or will be when the key of the session has expired
	}
	if err := o.freeKey(ctx); err != nil {
		return fmt.Errorf("natslog: release of cell %s: %w", o.log.cell, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ended, o)
	return nil
}

// end deletes the key, so that all cells of the session are free. The caller has ended the renewals.
func (s *session) end(ctx context.Context) error {
	s.lose()
	if s.expiry != nil {
		s.expiry.Stop()
	}
	err := s.log.persist(ctx, func(ctx context.Context) error {
		_, err := s.write(ctx, func(ctx context.Context) (uint64, error) {
			return s.log.deleteKey(ctx, s.name, s.revision, markTime)
		})
		return err
	})
	if errors.Is(err, sharedlog.ErrFenced) {
		return nil // an earlier attempt has deleted the key, or it has expired
	}
	return err
}

// endWithLease ends a session with one lease, whose lease is released. It tries until the key has expired.
func (s *session) endWithLease(ctx context.Context) error {
	s.endRenewals()
	if !s.valid() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.left()+margin)
	defer cancel()
	if err := s.end(ctx); err != nil {
		return fmt.Errorf("natslog: release of cell %s: %w", s.log.cell, err)
	}
	return nil
}

// lose ends a session whose cells another host may have by now, and all of its leases.
func (s *session) lose() {
	s.invalid.Store(true)
	s.mu.Lock()
	s.lost = true
	leases := slices.Collect(maps.Values(s.leases))
	s.mu.Unlock()
	for _, o := range leases {
		o.lose()
	}
}

// add adds a lease, unless the session has ended.
func (s *session) add(o *lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		return false
	}
	s.leases[o.owner] = o
	return true
}

// remove removes a lease that has ended. It returns false if the lease was removed before.
func (s *session) remove(o *lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[o.owner] == nil {
		return false
	}
	delete(s.leases, o.owner)
	s.ended[o] = struct{}{}
	return true
}

// has reports whether a lease of the session has this owner, and has not ended.
func (s *session) has(owner string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[owner] != nil
}

// left is the time to the deadline.
func (s *session) left() time.Duration {
	return s.log.options.LeaseTime - margin - now().since(*s.sent.Load())
}

// valid reports whether the key is certain to exist.
func (s *session) valid() bool {
	if s.invalid.Load() {
		return false
	}
	if s.left() <= 0 {
		s.invalid.Store(true) // a renewal that is acknowledged now must not make it valid again
		return false
	}
	return true
}

// moment is a time by two clocks.
type moment struct{ monotonic, wall time.Time }

func now() moment {
	t := time.Now()
	return moment{t, t.Round(0)} // Round removes the reading of the monotonic clock
}

// since is the time since an earlier moment, by the clock that is ahead: the monotonic clock stands still while a machine is suspended, and
// the wall clock may be set back.
func (m moment) since(earlier moment) time.Duration {
	return max(m.monotonic.Sub(earlier.monotonic), m.wall.Sub(earlier.wall))
}

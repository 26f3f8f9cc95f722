package natslog

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dohost/dohost/sharedlog"
)

// acceptingServers accept each message, and then call a function.
type acceptingServers struct {
	jetstream.JetStream
	sequence uint64
	accepted func()
}

func (s *acceptingServers) PublishMsg(context.Context, *nats.Msg, ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	s.sequence++
	s.accepted()
	return &jetstream.PubAck{Sequence: s.sequence}, nil
}

// silentBucket answers no read.
type silentBucket struct{ jetstream.Stream }

func (silentBucket) GetLastMsgForSubject(ctx context.Context, _ string) (*jetstream.RawStreamMsg, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// beginOn begins a session with a lease on servers, which a test with virtual time has.
func beginOn(t *testing.T, servers *acceptingServers) (*session, *lease) {
	t.Helper()
	l := &Log{cell: "main", js: servers, owners: silentBucket{}, options: Options{LeaseTime: defaultLease, Logger: slog.New(slog.DiscardHandler)}}
	s := l.newSession(ofMember, nil)
	if err := s.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.expiry.Stop() })
	o := &lease{log: l, session: s, owner: "owner", lost: make(chan struct{})}
	s.add(o)
	return s, o
}

// TestRenewalAcknowledgedTooLate has a session whose deadline passes after the servers have accepted its renewal, before its timer runs.
func TestRenewalAcknowledgedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := &acceptingServers{accepted: func() {}}
		s, o := beginOn(t, servers)
		if err := s.renew(t.Context()); err != nil || !o.Valid() {
			t.Fatalf("a renewal: %v", err)
		}
		servers.accepted = func() {
			past := moment{time.Now().Add(-defaultLease), time.Now().Round(0)}
			s.sent.Store(&past)
		}
		if err := s.renew(t.Context()); !errors.Is(err, sharedlog.ErrFenced) {
			t.Errorf("the renewal: %v", err)
		}
		if o.Valid() || !isLost(o) {
			t.Errorf("the lease is valid %v, lost %v", o.Valid(), isLost(o))
		}
	})
}

// TestRenewalsDoNotWaitForReleases has a release that the servers do not answer, although they accept renewals.
func TestRenewalsDoNotWaitForReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := beginOn(t, &acceptingServers{accepted: func() {}})
		o.lose()
		begun := time.Now()
		if err := s.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took == 0 || took > defaultLease/6 {
			t.Errorf("the renewal and the release took %v", took)
		}
		if len(s.ended) != 1 || !s.valid() {
			t.Errorf("%d releases are repeated; the session is valid %v", len(s.ended), s.valid())
		}
	})
}

package natslog

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// slowServers have one subject, and need a time for each message, even if the client waits no longer.
type slowServers struct {
	jetstream.JetStream
	time     time.Duration
	expected func() uint64 // the sequence that the client expects
	busy     time.Time     // until then the servers have messages
	last     jetstream.RawStreamMsg
}

// wait waits until a message that is sent now has arrived.
func (s *slowServers) wait(ctx context.Context, arrived func()) error {
	if now := time.Now(); s.busy.Before(now) {
		s.busy = now
	}
	s.busy = s.busy.Add(s.time)
	done := make(chan struct{})
	time.AfterFunc(time.Until(s.busy), func() {
		arrived()
		close(done)
	})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slowServers) PublishMsg(ctx context.Context, m *nats.Msg, _ ...jetstream.PublishOpt) (ack *jetstream.PubAck, err error) {
	var refusal error
	expected, data := s.expected(), append([]byte(nil), m.Data...)
	err = s.wait(ctx, func() {
		if s.last.Sequence != expected {
			refusal = &jetstream.APIError{Code: 400, ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence}
			return
		}
		s.last = jetstream.RawStreamMsg{Sequence: expected + 1, Data: data}
		ack = &jetstream.PubAck{Sequence: expected + 1}
	})
	if err != nil {
		return nil, err
	}
	return ack, refusal
}

// slowStream has the subject of slow servers. A read needs a time as well.
type slowStream struct {
	jetstream.Stream
	*slowServers
	time time.Duration
}

func (s slowStream) GetLastMsgForSubject(ctx context.Context, _ string) (*jetstream.RawStreamMsg, error) {
	if err := sleep(ctx, s.time); err != nil {
		return nil, err
	}
	if s.last.Sequence == 0 {
		return nil, jetstream.ErrMsgNotFound
	}
	last := s.last
	return &last, nil
}

// TestSessionBeginsOnSlowServers has servers that need less than the time of a renewal for a write, so a session stays valid on them.
func TestSessionBeginsOnSlowServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := &slowServers{time: 700 * time.Millisecond}
		l := &Log{cell: "main", js: servers, owners: slowStream{slowServers: servers}, options: Options{LeaseTime: defaultLease}}
		s := l.newSession(ofMember, nil)
		servers.expected = func() uint64 { return s.revision }
		timely := func(request func(context.Context) error) error { // as a node calls Table.Renew
			ctx, cancel := context.WithTimeout(t.Context(), defaultLease/renewals)
			defer cancel()
			return request(ctx)
		}
		for begun := time.Now(); timely(s.begin) != nil; {
			if time.Since(begun) > 10*defaultLease {
				t.Fatalf("the session has not begun after %v", time.Since(begun))
			}
		}
		defer s.expiry.Stop()
		for range 10 {
			time.Sleep(defaultLease / renewals)
			if err := timely(s.renew); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestBaseIsWrittenToSlowServers has a slow connection, on which a repetition of a message delays the next one.
func TestBaseIsWrittenToSlowServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := &slowServers{time: answerTime * 3 / 4}
		w := &baseWriter{ctx: t.Context(), log: &Log{cell: "main", js: servers, bases: slowStream{slowServers: servers, time: servers.time}}, part: 1}
		servers.expected = func() uint64 { return w.last }
		begun := time.Now()
		if _, err := w.Write([]byte("base")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); w.last != 4 || took > 4*answerTime {
			t.Errorf("%d messages took %v", w.last, took)
		}
	})
}

// GetMsg has the time of a message that is sent.
func (s slowStream) GetMsg(ctx context.Context, sequence uint64, _ ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	if err := s.wait(ctx, func() {}); err != nil {
		return nil, err
	}
	f := frame{kind: kindRecord, number: sequence, parts: 1}
	return &jetstream.RawStreamMsg{Sequence: sequence, Data: f.encode()}, nil
}

// TestRecordIsFoundOnSlowServers has a slow connection, as TestBaseIsWrittenToSlowServers has. The servers answer with whole messages.
func TestRecordIsFoundOnSlowServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Log{cell: "main", stream: slowStream{slowServers: &slowServers{time: answerTime * 3 / 4}}}
		begun := time.Now()
		number, err := l.numberAt(t.Context(), 7)
		if err != nil || number != 7 || time.Since(begun) > answerTime {
			t.Errorf("the record %d was found after %v: %v", number, time.Since(begun), err)
		}
	})
}

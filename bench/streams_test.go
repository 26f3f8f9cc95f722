package main

import (
	"net/http"
	"testing"
	"time"
)

// TestVerifyNoticesAppends appends messages to streams, and then loses one, doubles one, or counts one that was not appended.
func TestVerifyNoticesAppends(t *testing.T) {
	b := small(t)
	post := func(s *appendSide, stream int, body []byte) error {
		l, err := dial(t.Context(), s.address())
		if err != nil {
			return err
		}
		defer l.conn.Close()
		return l.succeed(http.MethodPost, streamPath(stream), "Content-Type: application/octet-stream\r\n", body)
	}
	for want, fault := range map[string]func(s *appendSide) (more int64, err error){
		"":                            func(*appendSide) (int64, error) { return 0, nil },
		"messages, and":               func(*appendSide) (int64, error) { return 1, nil },
		"stream 1: the message after": func(s *appendSide) (int64, error) { return 1, post(s, 1, streamMessage(0, 100)) },
		"stream 0: there are":         func(s *appendSide) (int64, error) { s.counts[0]++; return 1, nil },
		"and 5 bytes, want":           func(s *appendSide) (int64, error) { return 0, post(s, 0, []byte("a bit")) },
	} {
		h, err := b.openStreams(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s := &appendSide{streamServer: h, producers: 2, size: 100, idempotent: true}
		m := &meter{until: time.Now().Add(b.duration)}
		for range 2 {
			if err := s.work(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		more, err := fault(s)
		if err != nil {
			t.Fatal(err)
		}
		check(t, s.verify(t.Context(), m.ops()+more), want)
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestReadersNoticeOtherMessages lets readers receive messages twice, too early, out of order and incompletely.
func TestReadersNoticeOtherMessages(t *testing.T) {
	first, second := string(streamMessage(0, readMessage)), string(streamMessage(1, readMessage))
	for _, c := range []struct {
		had  int64
		text string
		want string
	}{
		{0, first, ""},
		{0, first + second, ""},
		{1, second, ""},
		{1, first, "the message after 1 of 2"},
		{0, second, "the message after 0 of 2"},
		{2, string(streamMessage(2, readMessage)), "the message after 2 of 2"},
		{0, first + "a bit", "after 1 messages there are 5 more bytes"},
	} {
		s := &readSide{sent: 2, missing: 1, got: make(chan struct{}, 1)}
		_, err := s.received(c.had, c.text)
		check(t, err, c.want)
	}
	s := &readSide{sent: 2, readers: 3}
	check(t, s.verify(t.Context(), 6), "")
	check(t, s.verify(t.Context(), 5), "5 messages were received, and 3 readers should have 2")
}

// fixedLog is a log whose sync has ended at a time.
type fixedLog time.Time

func (fixedLog) begin()               {}
func (l fixedLog) durable() time.Time { return time.Time(l) }

// TestReadsAfterSyncBeginAtTheSync has a message that a reader receives a minute after the beginning of its append, and half a minute after
// its sync. A message without a sync is a fault of the server.
func TestReadsAfterSyncBeginAtTheSync(t *testing.T) {
	for _, c := range []struct {
		log  syncedLog
		want time.Duration
		err  string
	}{
		{nil, time.Minute, ""},
		{fixedLog(time.Now().Add(-30 * time.Second)), 30 * time.Second, ""},
		{fixedLog{}, 0, "before a sync of the log"},
	} {
		s := &readSide{sent: 1, missing: 1, at: time.Now().Add(-time.Minute), got: make(chan struct{}, 1), log: c.log}
		_, err := s.received(0, string(streamMessage(0, readMessage)))
		check(t, err, c.err)
		if err == nil && (len(s.took) != 1 || s.took[0] < c.want || s.took[0] >= c.want+29*time.Second) {
			t.Errorf("the message took %v, want %v", s.took, c.want)
		}
	}
}

// TestHostReportsTheFirstSync appends two messages to a stream.
func TestHostReportsTheFirstSync(t *testing.T) {
	h, err := small(t).openStreams(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &appendSide{streamServer: h, producers: 1, size: 100}
	began := time.Now()
	h.begin()
	if err := s.work(t.Context(), &meter{until: began}); err != nil { // creates a stream, and appends once
		t.Fatal(err)
	}
	first := h.durable()
	if err := s.work(t.Context(), &meter{until: began}); err != nil {
		t.Fatal(err)
	}
	if again := h.durable(); first.Before(began) || first.After(time.Now()) || !again.Equal(first) {
		t.Errorf("the first sync is at %v, and later at %v; the appends began at %v", first, again, began)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

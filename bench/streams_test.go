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

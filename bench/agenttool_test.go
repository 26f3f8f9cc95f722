package main

import (
	"context"
	"testing"

	"github.com/dohost/dohost/inbox"
)

// TestVerifyNoticesAnswers asks three times, and then counts one answer more, or sends as many messages as an answer has, which no agent answers.
func TestVerifyNoticesAnswers(t *testing.T) {
	nothing := func(*toolSide) error { return nil }
	unanswered := func(s *toolSide) error {
		return teams.Get(s, name(0)).Do(t.Context(), func(ctx context.Context, o *team) error {
			for range messagesOfAnswer {
				if _, err := inbox.Send(ctx, o.Storage(), &inquiries, inbox.Message{To: "nobody", Content: "hello?"}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for _, c := range []struct {
		asks   bool
		object string
		done   int64
		fault  func(*toolSide) error
		want   string
	}{
		{true, name(0), 3, nothing, ""},
		{true, name(1), 3, nothing, ""},
		{false, name(0), 3, nothing, ""},
		{true, name(1), 4, nothing, "0 of 12 messages wait, want none of 16"},
		{true, name(0), 4, unanswered, "4 of 16 messages wait, want none of 16"},
	} {
		s, err := small(t).openTools(c.asks, c.object)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := s.one(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.fault(s); err != nil {
			t.Error(err)
		}
		check(t, s.verify(t.Context(), c.done), c.want)
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}

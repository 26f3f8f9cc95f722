package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// TestHistoryAndDeadlinesAtRandom lets programs write messages of a conversation while it is summarised: they send messages and requests with
// deadlines, insert processed messages at any time, change and delete messages, some of them in transactions that fail, and kill the
// host. After each step each message is in exactly one summary or in the window, and expired requests are in neither.
func TestHistoryAndDeadlinesAtRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("the first seed is %d", seed)
	expired, summaries := 0, 0
	for n := range uint64(2) {
		s := &scribe{delay: 700 * time.Millisecond, pace: 400 * time.Millisecond}
		rng := rand.New(rand.NewPCG(seed+n, 0))
		a := s.agent("clerk", 5, 2)
		a.Options.Retry.MaxAttempts = 100 // no number of kills parks a message
		runHistory(t, a, func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox) {
			store(t, ctx, h, "m", 8, time.Now().Add(-time.Minute))
			for i := range 40 {
				if rng.IntN(15) == 0 {
					h.Kill()
				}
				inDesk(t, ctx, h, func(ctx context.Context, d *desk) error { return changeHistory(ctx, d, rng, fmt.Sprint("s", i)) })
				h.Advance(time.Duration(rng.IntN(1000)) * time.Millisecond)
				inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
					list, err := inbox.Summaries(ctx, d.Storage(), &messages, "clerk")
					summaries += len(list)
					return errors.Join(err, checkContext(ctx, d, in, "clerk"))
				})
			}
			h.Advance(10 * time.Minute)
			inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
				rows, err := messages.List(ctx, d.Storage(), nil)
				for _, row := range rows {
					if row.Value.Expired {
						expired++
					}
				}
				return errors.Join(err, checkContext(ctx, d, in, "clerk"))
			})
			if n := waiting(t, ctx, h); n > 0 {
				t.Errorf("%d messages wait", n)
			}
		})
	}
	t.Logf("%d requests have expired, and the steps have found %d summaries", expired, summaries)
	if expired == 0 || summaries == 0 {
		t.Error("want some of each")
	}
}

// changeHistory makes a random change of the conversation. word is a new id.
func changeHistory(ctx context.Context, d *desk, rng *rand.Rand, word string) error {
	rows, err := messages.List(ctx, d.Storage(), nil)
	if err != nil {
		return err
	}
	m := inbox.Message{ID: word, From: "ada", To: "clerk", Content: word}
	var one inbox.Message
	if len(rows) > 0 {
		one = rows[rng.IntN(len(rows))].Value
	}
	switch k := rng.IntN(10); {
	case k < 3 || len(rows) == 0:
		_, err = inbox.Send(ctx, d.Storage(), &messages, m)
	case k < 6:
		m.Request, m.Deadline = word, time.Now().Add(time.Duration(rng.IntN(1000)-100)*time.Millisecond)
		_, err = inbox.Send(ctx, d.Storage(), &messages, m)
	case k == 6:
		m.Role, m.Created = "user", one.Created
		m.Processed = m.Created.Add(time.Duration(rng.IntN(2000)-1000) * time.Millisecond)
		err = messages.Insert(ctx, d.Storage(), m)
	case k == 7:
		_, err = messages.Update(ctx, d.Storage(), one.ID, func(m *inbox.Message) error { m.Content = word; return nil })
	case k == 8:
		_, err = messages.Delete(ctx, d.Storage(), one.ID)
	default:
		undone := errors.New("undone")
		err = dohost.Transaction(ctx, func(ctx context.Context) error {
			_, err := messages.Delete(ctx, d.Storage(), one.ID)
			return errors.Join(err, undone)
		})
		if errors.Is(err, undone) {
			err = nil
		}
	}
	return err
}

package inbox_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// quietModel yields five letters, one in a second. It ends without an error when its context ends, as the contract of models allows.
type quietModel struct{}

func (quietModel) Stream(ctx context.Context, _ *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		for range 5 {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
			if !yield(chat.TextDelta("t", "x"), nil) {
				return
			}
		}
	}
}

// TestDeadlineOfQuietModel moves the deadline of a request while a model answers that does not report its end. The answer that has ended at
// the old deadline is not recorded: the cycle that begins again has a whole one.
func TestDeadlineOfQuietModel(t *testing.T) {
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: quietModel{}})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, within("moved", 2500*time.Millisecond), within("over", 8*time.Second))
		h.Advance(time.Second)
		change(t, ctx, h, "moved", func(m *inbox.Message) error { m.Deadline = m.Deadline.Add(time.Hour); return nil })
		h.Advance(time.Minute)
		equal(t, "requests", states(t, ctx, h), "moved xxxxx", "over expired")
	}, inbox.On(in))
}

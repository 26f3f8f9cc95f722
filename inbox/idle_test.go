package inbox_test

import (
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// TestInboxThatIsIdleDoesNotWake lets an agent answer a message, and then do nothing for a day: it leaves memory, and nothing wakes it or writes.
func TestInboxThatIsIdleDoesNotWake(t *testing.T) {
	wakes := 0
	options := &dohosttest.Options{
		Options: dohost.Options{Listener: dohost.Listener{Waking: func(dohost.ID, dohost.Epoch) { wakes++ }}},
		Classes: []dohost.Class{deskClass(inbox.On(inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: &answerModel{}})))},
	}
	dohosttest.Run(t, options, func(t *testing.T, h *dohosttest.Host) {
		ctx := t.Context()
		send(t, ctx, h, fromAda("hello")...)
		h.Advance(time.Hour)
		if h.Host().LiveCount() > 0 {
			t.Error("the agent is in memory an hour after its answer")
		}
		before, records := wakes, h.Host().Stats().Records
		h.Advance(24 * time.Hour)
		if n, m := wakes-before, h.Host().Stats().Records-records; n != 0 || m != 0 {
			t.Errorf("%d wakes and %d records in a day without messages", n, m)
		}
		equal(t, "responses", responses(t, ctx, h), "hello to ada")
	})
}

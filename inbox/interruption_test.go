package inbox_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// TestInterruptionIsNoError ends the incarnation, and then the process, while a model is silent. OnError is called for neither: only for the
// error of the third cycle.
func TestInterruptionIsNoError(t *testing.T) {
	asked := 0
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: funcModel(func(ctx context.Context, yield func(chat.Chunk, error) bool) {
		if asked++; asked == 3 {
			yield(chat.Chunk{}, &chat.ModelError{Provider: "double", Message: "busy"})
			return
		}
		if asked < 3 {
			<-ctx.Done()
			yield(chat.Chunk{}, context.Cause(ctx))
			return
		}
		yield(chat.TextDelta("t", "yes"), nil)
	})})
	var errs []string
	in.OnError = func(_ *desk, _ context.Context, err error, _ []dohost.Row[inbox.Message]) {
		errs = append(errs, err.Error())
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, fromAda("1")...)
		h.Advance(time.Second)
		if !h.Evict(desks.Get(h, "a").ID(), dohost.EndFence) {
			t.Error("there was no incarnation")
		}
		h.Advance(time.Minute)
		if asked != 2 {
			t.Errorf("the model was asked %d times before the kill", asked)
		}
		h.Kill()
		h.Advance(time.Hour)
		if len(errs) != 1 || !strings.Contains(errs[0], "busy") || asked != 4 {
			t.Errorf("errors %q, the model was asked %d times", errs, asked)
		}
		equal(t, "responses", responses(t, ctx, h), "yes to ada")
	}, inbox.On(in))
}

// TestCloseEndsCycles closes hosts while models are silent, in several objects, and while the method of OnRows waits. When Close has returned, no
// method runs. A model runs on a goroutine of its own, and Close only cancels its context.
func TestCloseEndsCycles(t *testing.T) {
	const objects = 5
	var begun, ended atomic.Int64
	var running chan struct{}
	silent := func(ctx context.Context, stop time.Duration) {
		begun.Add(1)
		defer ended.Add(1)
		running <- struct{}{}
		<-ctx.Done()
		<-time.After(stop) // Close waits a second for code that has lost its incarnation
	}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: funcModel(func(ctx context.Context, yield func(chat.Chunk, error) bool) {
		silent(ctx, 50*time.Millisecond)
		yield(chat.Chunk{}, context.Cause(ctx))
	})})
	handler := agent.OnRows(&tickets, "open", func(d *desk, ctx context.Context, _ dohost.Row[ticket]) error {
		return dohost.Await(ctx, func(ctx context.Context) error { silent(ctx, 100*time.Millisecond); return context.Cause(ctx) })
	}, nil)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { // in virtual time, Close waits for slow goroutines, too
		h, err := dohost.Open(dir, &dohost.Options{Grace: -1}, deskClass(inbox.On(in), handler))
		if err != nil {
			t.Fatal(err)
		}
		running = make(chan struct{}, 4*objects)
		for i := range objects {
			err := desks.Get(h, string(rune('a'+i))).Do(t.Context(), func(ctx context.Context, d *desk) error {
				if err := tickets.Put(ctx, d.Storage(), ticket{ID: "1"}); err != nil {
					return err
				}
				_, err := inbox.Send(ctx, d.Storage(), &messages, inbox.Message{To: "clerk"})
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
		for range 2 * objects {
			<-running
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if b, e := begun.Load(), ended.Load(); b != 2*objects || e != b {
			t.Errorf("%d have begun, and %d have ended", b, e)
		}
	})
}

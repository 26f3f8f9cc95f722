package inbox_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// fillingDesk is a host with desks. fill makes its disk full for three seconds, or until an agent reports an error, the first time.
type fillingDesk struct {
	*testing.T
	h      *dohost.Host
	fs     *objectstore.FS
	filled bool
}

func (d *fillingDesk) fill() {
	if d.filled {
		return
	}
	d.filled = true
	d.setFree(0)
	time.AfterFunc(3*time.Second, func() { d.setFree(1 << 40) })
}

func (d *fillingDesk) setFree(bytes uint64) {
	d.fs.SetFree(bytes)
	kernel.OfHost(d.h).RecheckSpace()
}

// runFilling sends messages, a minute apart, and then calls check. class makes the class of the desks.
func runFilling(t *testing.T, class func(d *fillingDesk) dohost.Class, check func(ctx context.Context, d *desk) error, list ...inbox.Message) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &fillingDesk{T: t, fs: objectstore.NewMemFS()}
		d.fs.SetFree(1 << 40)
		options := &dohost.Options{Listener: dohost.Listener{Service: func(_ dohost.ID, event string, _ ...slog.Attr) {
			if event == "inbox:error" {
				d.setFree(1 << 40)
			}
		}}}
		h, err := dohost.Open("data", kernel.OnFS(options, d.fs), class(d))
		if err != nil {
			t.Fatal(err)
		}
		d.h = h
		for _, m := range list {
			if m.To == "" {
				m.To = "clerk"
			}
			err = errors.Join(err, desks.Get(h, "a").Do(t.Context(), func(ctx context.Context, d *desk) error {
				_, err := inbox.Send(ctx, d.Storage(), &messages, m)
				return err
			}))
			time.Sleep(time.Minute)
		}
		err = errors.Join(err, desks.Get(h, "a").Do(t.Context(), check), h.Close())
		if err != nil || !d.filled {
			t.Errorf("the disk was full: %t, %v", d.filled, err)
		}
	})
}

// whenWritten fills the disk when the desk has written n rows of messages with ids that begin with a prefix.
func (d *fillingDesk) whenWritten(prefix string, n int) agent.Entry[desk] {
	return agent.Extend(agent.Extension[desk]{RowWritten: func(_ context.Context, _ agent.Handle, w *dohost.RowWrite) error {
		if w.Collection == messages.Name && strings.HasPrefix(w.Key, prefix) {
			if n--; n == 0 {
				d.fill()
			}
		}
		return nil
	}})
}

// TestAgentToolOnFullDisk has a disk without space after the request to another agent, of the same object or of another one, is inserted. The
// cycle is repeated when there is space, and the model gets the response.
func TestAgentToolOnFullDisk(t *testing.T) {
	for _, object := range []string{"a", "other"} {
		t.Run(object, func(t *testing.T) {
			class := func(d *fillingDesk) dohost.Class {
				return deskClass(append(team(elsewhere(object), "a", "b"), d.whenWritten("ask_", 1))...)
			}
			runFilling(t, class, func(ctx context.Context, d *desk) error {
				m, _, err := inbox.Reply(ctx, d.Storage(), &messages, inbox.Message{From: "ada", To: "a", Request: "r"})
				equal(t, "response", []string{m.Content}, "a heard (b says hi)")
				return err
			}, inbox.Message{ID: "1", From: "ada", To: "a", Content: "b: hi", Request: "r"})
		})
	}
}

// TestHistoryOnFullDisk has a disk without space for the start of a fiber, after the writes of the response. The summary is made
// without another message, and the response counts as no failure: the message is not parked.
func TestHistoryOnFullDisk(t *testing.T) {
	class := func(d *fillingDesk) dohost.Class {
		a := (&scribe{}).agent("clerk", 3, 1)
		a.Options.Retry.MaxAttempts = 1
		in := inbox.ForMessages[desk](&messages, a)
		return deskClass(inbox.On(in), d.whenWritten("msg_", 2))
	}
	runFilling(t, class, func(ctx context.Context, d *desk) error {
		list, err := inbox.Summaries(ctx, d.Storage(), &messages, "clerk")
		if len(list) != 1 || list[0].Messages != 3 {
			t.Errorf("%d summaries", len(list))
		}
		return err
	}, fromAda("1", "2")...)
}

// brokenModel is a model that always fails.
type brokenModel struct{}

func (brokenModel) Stream(context.Context, *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) { yield(chat.Chunk{}, errors.New("broken")) }
}

// TestAgentToolParkedOnFullDisk asks an agent of another object, which parks the request, and has a disk without space for the wake-up of
// the agent that asks. That agent gets the error a minute before its time limit.
func TestAgentToolParkedOnFullDisk(t *testing.T) {
	class := func(d *fillingDesk) dohost.Class {
		set := elsewhere("other")
		agents := team(func(a *inbox.Agent, tools []inbox.AgentTool) {
			set(a, tools)
			if a.Name == "b" {
				a.Model, a.Options.Retry.MaxAttempts = brokenModel{}, 1
			}
		}, "a", "b")
		full := agent.Extend(agent.Extension[desk]{RowsParked: func(_ context.Context, a agent.Handle, _ string, _ []string) error {
			if a.Object().ID().Name == "other" {
				d.fill()
			}
			return nil
		}})
		return deskClass(append([]agent.Entry[desk]{full}, agents...)...)
	}
	runFilling(t, class, func(ctx context.Context, d *desk) error {
		m, _, err := inbox.Reply(ctx, d.Storage(), &messages, inbox.Message{From: "ada", To: "a", Request: "r"})
		if !strings.Contains(m.Content, "no agent is going to answer") {
			t.Errorf("the response is %q", m.Content)
		}
		return err
	}, inbox.Message{ID: "1", From: "ada", To: "a", Content: "b: hi", Request: "r"})
}

// TestAgentToolDeletedOnFullDisk deletes a request while the disk is full. The deletion succeeds, without the wake-up of the agent that asks.
func TestAgentToolDeletedOnFullDisk(t *testing.T) {
	var filling *fillingDesk
	class := func(d *fillingDesk) dohost.Class {
		filling = d
		entries := team(func(a *inbox.Agent, _ []inbox.AgentTool) {
			a.Agents = []inbox.AgentTool{(&inbox.Agent{Name: "person"}).Tool(&messages)}
		}, "a")
		return deskClass(append(entries, answeredElsewhere("person"))...)
	}
	runFilling(t, class, func(ctx context.Context, d *desk) error {
		rows, err := messages.List(ctx, d.Storage(), &dohost.Query[inbox.Message]{Where: func(m inbox.Message) bool { return m.To == "person" }})
		if err != nil || len(rows) != 1 {
			t.Errorf("%d requests", len(rows))
			return err
		}
		filling.fill()
		_, err = messages.Delete(ctx, d.Storage(), rows[0].Key)
		return err
	}, inbox.Message{ID: "1", From: "ada", To: "a", Content: "person: hi", Request: "r"})
}

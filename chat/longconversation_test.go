package chat_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// reads counts the reads of the hosts of runLong.
var reads objectstore.Reads

// runLong runs a host of countingAgents without clients, on a disk that can be full. It opens once for each class.
func runLong(t *testing.T, f func(t *testing.T, h *dohost.Host, disk *objectstore.FS), classes ...dohost.Class) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		fs.SetFree(1 << 40)
		for _, class := range classes {
			o := kernel.OnFS(&dohost.Options{}, fs)
			kernel.Tune(o, func(ro *runtime.Options) { ro.Store.Reads = &reads })
			h, err := dohost.Open("data", o, class)
			if err != nil {
				t.Fatal(err)
			}
			func() {
				defer func() {
					if err := h.Close(); err != nil {
						t.Error(err)
					}
				}()
				f(t, h, fs)
			}()
		}
	})
}

func inAgent(t *testing.T, h *dohost.Host, f func(ctx context.Context, p *countingAgent) error) {
	t.Helper()
	if err := countingAgents.Get(h, testID.Name).Do(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

// askToGo asks the agent for a reply to the message "go".
func askToGo(t *testing.T, h *dohost.Host) {
	t.Helper()
	inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
		_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "go")}, nil)
		return err
	})
}

// wantRows checks the numbers of rows of chunks and messages.
func wantRows(t *testing.T, h *dohost.Host, what string, is func(chunks, rows int) bool) {
	t.Helper()
	inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
		chunks, rows, err := p.Rows(ctx)
		if !is(chunks, rows) {
			t.Errorf("%s: there are %d chunks and %d messages", what, chunks, rows)
		}
		return err
	})
}

func noRows(chunks, rows int) bool { return chunks+rows == 0 }

// A reply ends immediately, even with many chunks, and the next incarnation completes the sweep.
func TestReplyOfManyChunks(t *testing.T) {
	const words = 10_000
	class := countingClassOf(&countingState{}, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
		for i := range words {
			if i%1000 == 0 {
				if err := dohost.Sleep(ctx, 0); err != nil {
					return err
				}
			}
			if err := r.Say(ctx, "a"); err != nil {
				return err
			}
		}
		return nil
	}})
	runLong(t, func(t *testing.T, h *dohost.Host, _ *objectstore.FS) {
		inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
			id, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "a book")}, nil)
			if err != nil {
				return err
			}
			r, _, err := chat.Wait(ctx, p, id)
			if n := len(r.Message.PlainText()); r.Status != chat.StatusCompleted || n != words {
				t.Errorf("%s of %d: %s", r.Status, n, r.Error)
			}
			return err
		})
		for range 3 {
			h.Evict(testID, dohost.EndFence)
			wantRows(t, h, "while it is swept", func(chunks, _ int) bool { return 0 < chunks && chunks < words })
		}
		time.Sleep(time.Minute)
		wantRows(t, h, "then", func(chunks, rows int) bool { return chunks == 0 && rows == 2 })
	}, class)
}

// storeMessages stores the messages with the numbers from from to before to.
func storeMessages(ctx context.Context, p *countingAgent, from, to int) error {
	for ; from < to; from += 1000 {
		var list []chat.Message
		for i := from; i < min(to, from+1000); i++ {
			list = append(list, chat.Text(fmt.Sprint("m", i), chat.RoleUser, fmt.Sprint(i)))
		}
		if err := errors.Join(chat.SetMessages(ctx, p, list), dohost.Sleep(ctx, 0)); err != nil {
			return err
		}
	}
	return nil
}

// wantMessages checks that exactly these messages exist, with every kind of query.
func wantMessages(ctx context.Context, t *testing.T, p *countingAgent, from, to int) error {
	t.Helper()
	all, err := chat.Messages(ctx, p, 0)
	if err != nil || len(all) != to-from {
		return fmt.Errorf("%d messages instead of %d: %w", len(all), to-from, err)
	}
	for i, m := range all {
		if m.PlainText() != fmt.Sprint(from+i) {
			return fmt.Errorf("message %d is %q", from+i, m.PlainText())
		}
	}
	one, err := chat.Messages(ctx, p, 1)
	if len(one) != min(1, to-from) {
		return fmt.Errorf("%d messages instead of one: %w", len(one), err)
	}
	return err
}

// A conversation of any length is cleared immediately. Messages stored afterwards, even with old ids, survive the
// sweep.
func TestClearOfManyMessages(t *testing.T) {
	const many = 5000
	runLong(t, func(t *testing.T, h *dohost.Host, _ *objectstore.FS) {
		inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
			if err := storeMessages(ctx, p, 0, many); err != nil {
				return err
			}
			if err := errors.Join(chat.Clear(ctx, p), wantMessages(ctx, t, p, 0, 0)); err != nil {
				return err
			}
			return errors.Join(storeMessages(ctx, p, 7, 10), wantMessages(ctx, t, p, 7, 10))
		})
		h.Evict(testID, dohost.EndFence)
		wantRows(t, h, "while it is swept", func(_, rows int) bool { return 1000 < rows && rows <= many })
		time.Sleep(time.Minute)
		wantRows(t, h, "then", func(_, rows int) bool { return rows == 3 })
		inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
			return errors.Join(wantMessages(ctx, t, p, 7, 10), chat.Clear(ctx, p), wantMessages(ctx, t, p, 0, 0))
		})
		wantRows(t, h, "in the end", noRows)
	}, countingClass(&countingState{}, chat.Options{}))
}

// If the class lowers MaxMessages, a longer conversation is trimmed immediately.
func TestTrimOfManyMessages(t *testing.T) {
	const many, most = 5000, 10
	var first, then = countingClass(&countingState{}, chat.Options{}), countingClass(&countingState{}, chat.Options{MaxMessages: most})
	opened := 0
	runLong(t, func(t *testing.T, h *dohost.Host, _ *objectstore.FS) {
		if opened++; opened == 1 {
			inAgent(t, h, func(ctx context.Context, p *countingAgent) error { return storeMessages(ctx, p, 0, many) })
			return
		}
		inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
			return errors.Join(storeMessages(ctx, p, many, many+1), wantMessages(ctx, t, p, many+1-most, many+1))
		})
		time.Sleep(time.Minute)
		wantRows(t, h, "then", func(_, rows int) bool { return rows == most })
		inAgent(t, h, func(ctx context.Context, p *countingAgent) error { // rows below the floor do not count
			for i := range 5 {
				if err := storeMessages(ctx, p, i, i+1); err != nil {
					return err
				}
			}
			all, err := chat.Messages(ctx, p, 0)
			if len(all) != most || all[most-1].PlainText() != "4" || all[0].PlainText() != fmt.Sprint(many-4) {
				t.Errorf("%d: %s to %s", len(all), all[0].PlainText(), all[most-1].PlainText())
			}
			return err
		})
	}, first, then)
}

// sendChunks sends chunks of a type, each with members.
func sendChunks(ctx context.Context, r *chat.Reply, list ...map[string]any) error {
	for _, members := range list {
		c, err := chat.NewChunk(members["type"].(string), members)
		if err = errors.Join(err, r.Send(ctx, c)); err != nil {
			return err
		}
	}
	return nil
}

// The results of tools survive a drop, even if the disk is full at the drop and the incarnation ends while the drop
// waits for space.
func TestDropOnAFullDisk(t *testing.T) {
	var disk *objectstore.FS
	calls, cuts := 0, 0
	class := countingClassOf(&countingState{}, &handlers{
		Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
			if calls++; calls > 1 {
				return r.Say(ctx, "that was all")
			}
			err := sendChunks(ctx, r,
				map[string]any{"type": "tool-input-available", "toolCallId": "c", "toolName": "pay", "input": 7},
				map[string]any{"type": "tool-output-available", "toolCallId": "c", "output": "paid"})
			return errors.Join(err, r.Say(ctx, "nonsense"), dohost.Sleep(ctx, time.Hour))
		},
		OnRecovery: func(_ *countingAgent, ctx context.Context, cut *chat.InterruptedReply) (chat.RecoveryAction, error) {
			if cuts++; cuts == 1 {
				disk.SetFree(0)
			}
			return chat.RecoveryRestart, dohost.Sleep(ctx, time.Second)
		},
	})
	runLong(t, func(t *testing.T, h *dohost.Host, fs *objectstore.FS) {
		disk = fs
		inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "pay")}, &chat.AskOptions{ID: "one"})
			return errors.Join(err, dohost.Sleep(ctx, time.Second))
		})
		h.Evict(testID, dohost.EndFence)
		wantRows(t, h, "as it was", func(chunks, _ int) bool { return chunks == 5 })
		time.Sleep(10 * time.Second)
		h.Evict(testID, dohost.EndFence)
		disk.SetFree(1 << 40)
		time.Sleep(time.Second)
		inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
			r, _, err := chat.Wait(ctx, p, "one")
			raw, _ := r.Message.MarshalJSON()
			if r.Status != chat.StatusCompleted || r.Message.PlainText() != "that was all" || !strings.Contains(string(raw), `"output":"paid"`) {
				t.Errorf("%s after %d decisions: %s", r.Status, cuts, raw)
			}
			return err
		})
		wantRows(t, h, "then", func(chunks, _ int) bool { return chunks == 0 })
	}, class)
}

// OnResponse is called once, also if the disk is full when it returns.
func TestOnResponseIsCalledOnceOnFullDisk(t *testing.T) {
	var disk *objectstore.FS
	calls := 0
	class := countingClassOf(&countingState{words: 1}, &handlers{
		Reply: (*countingAgent).reply,
		OnResponse: func(_ *countingAgent, ctx context.Context, _ chat.Response) error {
			calls++
			disk.SetFree(0)
			return dohost.Sleep(ctx, 10*time.Second)
		},
	})
	runLong(t, func(t *testing.T, h *dohost.Host, fs *objectstore.FS) {
		disk = fs
		inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "say")}, &chat.AskOptions{ID: "one"})
			return err
		})
		time.Sleep(time.Minute)
		disk.SetFree(1 << 40)
		time.Sleep(time.Minute)
		if calls != 1 {
			t.Errorf("OnResponse was called %d times", calls)
		}
	}, class)
}

// A handler that waits for a full disk has not stalled, however long the wait; a handler that sends nothing on a disk
// with space has.
func TestStallOnAFullDisk(t *testing.T) {
	var disk *objectstore.FS
	var calls []int
	class := countingClassOf(&countingState{}, &handlers{
		Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
			calls = append(calls, r.Attempt)
			if r.Attempt > 0 {
				return r.Say(ctx, "c")
			}
			err := r.Say(ctx, "a")
			disk.SetFree(0)
			err = errors.Join(err, dohost.Sleep(ctx, 59*time.Second)) // just before the stall
			err = errors.Join(err, r.Say(ctx, "b"))                   // waits
			return errors.Join(err, dohost.Sleep(ctx, time.Hour))
		},
		Options: chat.Options{Stall: time.Minute},
	})
	runLong(t, func(t *testing.T, h *dohost.Host, fs *objectstore.FS) {
		disk = fs
		begun := time.Now()
		inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "say")}, &chat.AskOptions{ID: "one"})
			return err
		})
		time.Sleep(10 * time.Minute)
		disk.SetFree(1 << 40)
		inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
			r, _, err := chat.Wait(ctx, p, "one")
			if took := time.Since(begun).Round(10 * time.Second); r.Message.PlainText() != "abc" || took != 11*time.Minute {
				t.Errorf("%q after %v", r.Message.PlainText(), took)
			}
			if len(calls) != 2 {
				t.Errorf("the handler was called %d times", len(calls))
			}
			return err
		})
	}, class)
}

// An agent that wakes does not read the conversation, and storing a message does not read the others, even if one is
// deleted for it. The test counts iterator steps.
func TestConversationIsNotReadOnWakeOrStore(t *testing.T) {
	const most = 3000
	runLong(t, func(t *testing.T, h *dohost.Host, _ *objectstore.FS) {
		inAgent(t, h, func(ctx context.Context, p *countingAgent) error { return storeMessages(ctx, p, 0, most) })
		for what, f := range map[string]func(ctx context.Context, p *countingAgent) error{
			"waking":     func(context.Context, *countingAgent) error { return nil },
			"a message":  func(ctx context.Context, p *countingAgent) error { return storeMessages(ctx, p, most, most+1) },
			"the newest": func(ctx context.Context, p *countingAgent) error { _, err := chat.Messages(ctx, p, 10); return err },
		} {
			h.Evict(testID, dohost.EndFence)
			before := reads.Steps.Load()
			inAgent(t, h, f)
			if n := reads.Steps.Load() - before; n > 60 {
				t.Errorf("%s: %d entries are read", what, n)
			}
		}
	}, countingClass(&countingState{}, chat.Options{MaxMessages: most}))
}

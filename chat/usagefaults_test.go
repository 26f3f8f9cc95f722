package chat_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

type modelFunc func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool)

func (m modelFunc) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) { m(ctx, p, yield) }
}

type resumableFunc struct {
	modelFunc
	resume modelFunc
}

func (m resumableFunc) ResumeStream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return m.resume.Stream(ctx, p)
}

func shownWorkerAgents() dohost.Class {
	return agent.Bind(workerAgents, func(_ context.Context, a *agent.Agent[struct{}]) (*workerAgent, error) { return &workerAgent{a}, nil },
		&agent.Handlers[workerAgent, struct{}]{Extensions: []dohost.ClassExtension{chat.ShowUsage()}})
}

func runWorkerAgent(t *testing.T, f func(t *testing.T, ctx context.Context, h *dohosttest.Host)) {
	t.Helper()
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{shownWorkerAgents()}}, func(t *testing.T, h *dohosttest.Host) { f(t, t.Context(), h) })
}

var workerAgentID = dohost.ID{Class: "clerk", Name: "7"}

// runLongWorkerAgent runs f with a host of worker agents and a disk that can be full.
func runLongWorkerAgent(t *testing.T, f func(t *testing.T, h *dohost.Host, disk *objectstore.FS)) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		fs.SetFree(1 << 40)
		h, err := dohost.Open("data", kernel.OnFS(&dohost.Options{}, fs), shownWorkerAgents())
		if err != nil {
			t.Fatal(err)
		}
		f(t, h, fs)
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A report after the end of Stream does nothing, and a checkpoint is an error.
func TestUsageReportedAfterTheEnd(t *testing.T) {
	var late *chat.Prompt
	m := modelFunc(func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) {
		late = p
		yield(chat.TextDelta("t", "x"), nil)
	})
	replyWith(t, m, chat.Options{}, nil, func(ctx context.Context, p *countingAgent, _ chat.Response) error {
		defer func() {
			if v := recover(); v != nil {
				t.Errorf("a late report panics, which ends the process: %v", v)
			}
		}()
		for range 100 { // more than the events that wait for a receiver
			late.ReportUsage(ctx, chat.Usage{OutputTokens: 1})
			if err := late.SaveCheckpoint(ctx, 1); err == nil {
				t.Error("a late checkpoint is saved")
			}
		}
		total, err := chat.AgentUsage(ctx, p)
		if total.OutputTokens != 1 || total.Estimates != 1 {
			t.Errorf("a late report counts: %+v", total)
		}
		return err
	})
}

// A report with a context that does not end blocks no model after a stop.
func TestUsageReportedAfterAStop(t *testing.T) {
	var took atomic.Int64
	m := modelFunc(func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) {
		yield(chat.TextDelta("t", "x"), nil)
		<-ctx.Done()
		from := time.Now()
		final, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Hour) // so that a test that fails ends
		defer stop()
		for range 20 {
			p.ReportUsage(final, chat.Usage{OutputTokens: 1})
		}
		took.Store(int64(time.Since(from)) + 1)
	})
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool { return nil }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { _, err := chat.Cancel(ctx, p, "one"); return err })
		h.Advance(time.Hour)
		if took.Load() == 0 {
			t.Error("an hour after the stop, ReportUsage blocks the goroutine of Stream")
		}
		h.Advance(4 * time.Hour)
	})
}

// An error of a model that wraps ErrFenced, of another object, ends the row, and old rows are deleted.
func TestUsageOfCallThatFailsWithAForeignFence(t *testing.T) {
	n := 0
	m := modelFunc(func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) {
		if n++; n == 1 {
			yield(chat.Chunk{}, fmt.Errorf("the object of the provider: %w", dohost.ErrFenced))
			return
		}
		yield(chat.TextDelta("t", "x"), nil)
	})
	class := toolClass(m, chat.Options{KeepUsage: time.Hour}, func(*countingAgent) []chat.Tool { return nil })
	runLong(t, func(t *testing.T, h *dohost.Host, _ *objectstore.FS) {
		inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
			for i := range 8 {
				id, err := chat.Ask(ctx, p, []chat.Message{chat.Text(fmt.Sprint("q", i), chat.RoleUser, "q")}, nil)
				if err != nil {
					return err
				}
				if _, _, err = chat.Wait(ctx, p, id); err != nil {
					return err
				}
				if err := dohost.Sleep(ctx, 3*time.Hour); err != nil {
					return err
				}
			}
			calls, err := collectCalls(ctx, p)
			if calls[0].Number == 1 && calls[0].Outcome == chat.ModelCallRunning || len(calls) > 2 {
				t.Errorf("%d calls are kept, the first is %d %s since %v ago; KeepUsage is an hour", len(calls), calls[0].Number, calls[0].Outcome, time.Since(calls[0].Began))
			}
			return err
		})
	}, class)
}

// The row of a call that ends by a time limit while the disk is full ends when there is space.
func TestUsageOfWorkerStoppedOnAFullDisk(t *testing.T) {
	runLongWorkerAgent(t, func(t *testing.T, h *dohost.Host, fs *objectstore.FS) {
		w := &chat.Worker[string, string]{Name: "w", Model: modelFunc(func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) {
			for ctx.Err() == nil && yield(chat.TextDelta("t", "word "), nil) {
				time.Sleep(time.Second)
			}
		})}
		go func() {
			time.Sleep(30 * time.Second)
			fs.SetFree(0)
			time.Sleep(5 * time.Minute)
			fs.SetFree(1 << 40)
		}()
		err := workerAgents.Get(h, "7").Do(t.Context(), func(ctx context.Context, c *workerAgent) error {
			limited, stop := context.WithTimeout(ctx, 2*time.Minute)
			defer stop()
			if _, err := w.Run(limited, c, "x"); err == nil {
				t.Error("the worker has an answer")
			}
			if err := dohost.Sleep(ctx, time.Hour); err != nil {
				return err
			}
			calls, err := collectCalls(ctx, c)
			if calls[0].Outcome == chat.ModelCallRunning {
				t.Errorf("an hour after the call was stopped it is %s, with %v", calls[0].Outcome, calls[0].Duration)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// An interrupted call is reported once, also if its row cannot be written at first.
func TestUsageOfInterruptedCallIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports atomic.Int64
		fs := objectstore.NewMemFS()
		fs.SetFree(1 << 40)
		o := kernel.OnFS(&dohost.Options{Listener: dohost.Listener{Service: func(_ dohost.ID, event string, attrs ...slog.Attr) {
			if event == "chat:model" {
				reports.Add(1)
			}
		}}}, fs)
		h, err := dohost.Open("data", o, shownWorkerAgents())
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		w := &chat.Worker[string, string]{Name: "w", Model: modelFunc(func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) { <-ctx.Done() })}
		run := func() {
			_ = workerAgents.Get(h, "7").Do(t.Context(), func(ctx context.Context, c *workerAgent) error {
				ctx, stop := context.WithTimeout(ctx, 2*time.Minute)
				defer stop()
				_, err := w.Run(ctx, c, "x")
				return err
			})
		}
		go run()
		time.Sleep(time.Second)
		h.Evict(workerAgentID, dohost.EndFence)
		time.Sleep(time.Second)
		fs.SetFree(0)
		time.Sleep(20 * time.Second)
		before := reports.Load()
		run()
		if n := reports.Load() - before; n > 1 {
			t.Errorf("one interrupted call is reported %d times", n)
		}
		fs.SetFree(1 << 40)
		time.Sleep(time.Minute)
	})
}

// TestUsageOfInterruptedCallIsReported ends the incarnation during a call. The next call reports the interrupted one.
func TestUsageOfInterruptedCallIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var interrupted atomic.Int64
		fs := objectstore.NewMemFS()
		fs.SetFree(1 << 40)
		o := kernel.OnFS(&dohost.Options{Listener: dohost.Listener{Service: func(_ dohost.ID, event string, attrs ...slog.Attr) {
			if event == "chat:model" && attrs[0].Value.String() == string(chat.ModelCallInterrupted) {
				interrupted.Add(1)
			}
		}}}, fs)
		h, err := dohost.Open("data", o, shownWorkerAgents())
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		hangs := true
		w := &chat.Worker[string, string]{Name: "w", Model: modelFunc(func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) {
			if hangs {
				<-ctx.Done()
			}
		})}
		run := func() {
			_ = workerAgents.Get(h, "7").Do(t.Context(), func(ctx context.Context, c *workerAgent) error {
				_, err := w.Run(ctx, c, "x")
				return err
			})
		}
		go run()
		time.Sleep(time.Second)
		h.Evict(workerAgentID, dohost.EndFence)
		time.Sleep(time.Second)
		hangs = false
		if n := interrupted.Load(); n != 0 {
			t.Errorf("%d reports before the next call", n)
		}
		run()
		synctest.Wait() // reports are made on another goroutine
		if n := interrupted.Load(); n != 1 {
			t.Errorf("%d reports of the interrupted call", n)
		}
	})
}

// The totals are the sums of the calls also if the object deletes its storage during a call.
func TestDeleteAllDuringCallOfModel(t *testing.T) {
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		w := &chat.Worker[string, string]{Name: "w", Model: modelFunc(func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) {
			yield(chat.TextDelta("t", "x"), nil)
			p.ReportUsage(ctx, chat.Usage{Model: "m", InputTokens: 1000, OutputTokens: 5})
		}), OnChunk: func(ctx context.Context, _ chat.Chunk) error { return c.Storage().DeleteAll(ctx) }}
		_, runErr := w.Run(ctx, c, "x")
		calls, err := chat.CheckUsage(ctx, c.Storage())
		if err != nil {
			t.Errorf("%v; the calls are %+v (Run: %v)", err, calls, runErr)
		}
		if len(calls) != 1 || calls[0].InputTokens != 1000 {
			t.Errorf("the calls are %+v", calls)
		}
	})
}

// A step has no row if the disk is full at its start. The run that resumes it does not continue the row of the step before.
func TestUsageOfCompletedCallIsNotContinued(t *testing.T) {
	var disk *objectstore.FS
	prices, asked := 0, 0
	m := resumableFunc{func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) {
		asked++
		if asked == 1 {
			yield(chat.ToolInput("c", "noop", `{}`), nil)
		} else {
			yield(chat.TextDelta("t", "x"), nil)
		}
		p.ReportUsage(ctx, chat.Usage{Model: fmt.Sprint("call-", asked), InputTokens: 1000, OutputTokens: 100})
	}, func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) {
		yield(chat.Chunk{}, chat.ErrNotResumable)
	}}
	ran := false
	price := func(chat.Usage) int64 {
		if prices++; ran && disk != nil { // of the row of the second step
			disk.SetFree(0)
			disk = nil
			time.Sleep(20 * time.Second) // until the host has found out
		}
		return 1
	}
	class := toolClass(m, chat.Options{Price: price}, func(*countingAgent) []chat.Tool {
		return []chat.Tool{chat.NewTool("noop", "", func(context.Context, struct{}) (string, error) { ran = true; return "ok", nil }, nil)}
	})
	runLong(t, func(t *testing.T, h *dohost.Host, fs *objectstore.FS) {
		disk = fs
		inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "u")}, &chat.AskOptions{ID: "one"})
			return err
		})
		time.Sleep(40 * time.Second)
		h.Evict(testID, dohost.EndFence)
		fs.SetFree(1 << 40)
		time.Sleep(time.Minute)
		inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
			calls, err := collectCalls(ctx, p)
			if len(calls) < 2 || calls[0].Outcome != chat.ModelCallCompleted {
				t.Errorf("the first call was completed, now: %+v", calls)
			}
			return err
		})
	}, class)
}

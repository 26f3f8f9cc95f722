package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/ledger"
)

// Desks is the namespace of Desk objects.
const Desks dohost.Namespace[Desk] = "desk"

// Desk is an assistant whose tool prints. The executor of the tool is another process.
type Desk struct{ *chat.Agent[struct{}] }

// Job is a text to be printed: a call of the tool, or a job that a client has added.
type Job struct {
	ID     string `json:"id"` // the key of the call, or the choice of the client
	Text   string `json:"text"`
	State  string `json:"state"` // open or done
	Call   bool   `json:"call,omitempty"`
	Result string `json:"result,omitempty"`
}

var (
	jobFeed = dohost.Feed{Name: "jobs", Keep: 1000, Values: true, Before: true}
	jobs    = dohost.Collection[Job]{
		Name:    "jobs",
		Key:     func(j Job) string { return j.ID },
		Indexes: []dohost.Index[Job]{{Name: "state", Of: func(j Job) dohost.Key { return dohost.KeyOf(j.State) }}},
		Feed:    &jobFeed,
	}
)

// Class is the class of desks.
func Class() dohost.Class {
	return chat.Bind(Desks, func(_ context.Context, a *chat.Agent[struct{}]) (*Desk, error) { return &Desk{a}, nil },
		&chat.Handlers[Desk, struct{}]{
			Reply: (*Desk).reply,
			Agent: agent.Handlers[Desk, struct{}]{OnRequest: (*Desk).serveJobs},
		},
		agent.Callable("ask", (*Desk).Ask), agent.Callable("add", (*Desk).Add), agent.Callable("report", (*Desk).Report))
}

func (d *Desk) reply(ctx context.Context, r *chat.Reply) error {
	tool := chat.NewTool("print", "Prints a text.", func(ctx context.Context, in printInput) (any, error) {
		call, _ := chat.CallFrom(ctx)
		_, err := d.Add(ctx, Job{ID: call.Key, Text: in.Text, Call: true})
		return nil, err // the executor has the result
	}, &chat.ToolOptions[printInput, any]{Policy: ledger.PolicyIdempotent, External: &chat.External{Within: 24 * time.Hour}})
	return chat.Answer(ctx, r, printingModel{}, &chat.AnswerOptions{Tools: []chat.Tool{tool}})
}

// printInput is the input of the tool.
type printInput struct {
	Text string `json:"text"`
}

// Question is a question of a client. Its ID makes a repetition harmless.
type Question struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// Ask requests an answer.
func (d *Desk) Ask(ctx context.Context, q Question) (string, error) {
	return chat.Ask(ctx, d, []chat.Message{chat.Text("user-"+q.ID, chat.RoleUser, q.Text)}, &chat.AskOptions{ID: q.ID})
}

// maxText bounds the text and the result of a job, in bytes: the feed has two versions of the row in one entry of at most 2 MiB. A
// job whose report does not fit would stay open, and the executor would print no other one.
const maxText = 64 << 10

// maxID bounds the id of a job, in bytes.
const maxID = 200

// checkText returns an error for a text that is too long.
func checkText(what, text string) error {
	if len(text) <= maxText {
		return nil
	}
	return &dohost.PublicError{
		Message: fmt.Sprintf("the %s has %d bytes, the limit is %d", what, len(text), maxText), Code: "too_large", Status: http.StatusRequestEntityTooLarge,
	}
}

// Add adds a job, unless the job is known, and returns its row.
func (d *Desk) Add(ctx context.Context, j Job) (Job, error) {
	if err := checkText("text", j.Text); err != nil {
		return j, err
	}
	if n := len(j.ID); n == 0 || n > maxID {
		message := fmt.Sprintf("the id of the job has %d bytes: want 1 to %d", n, maxID)
		return j, &dohost.PublicError{Message: message, Code: "invalid", Status: http.StatusBadRequest}
	}
	j.State, j.Result = "open", ""
	_, err := jobs.Ensure(ctx, d.Storage(), j)
	if !errors.Is(err, dohost.ErrConflict) {
		return j, err
	}
	old, _, err := jobs.Get(ctx, d.Storage(), j.ID)
	switch {
	case err != nil:
		return j, err
	case old.Value.Text != j.Text || old.Value.Call != j.Call:
		return j, &dohost.PublicError{Message: fmt.Sprintf("another job has the id %.100q", j.ID), Code: "conflict", Status: http.StatusConflict}
	}
	return old.Value, nil // it was printed before
}

// Result is a report of the executor.
type Result struct {
	ID     string `json:"id"`
	Output string `json:"output"`
}

// Report ends a job, and completes its call in the same batch. Only the first report has an effect.
func (d *Desk) Report(ctx context.Context, r Result) (Job, error) {
	if err := checkText("output", r.Output); err != nil {
		return Job{}, err
	}
	row, ok, err := jobs.Get(ctx, d.Storage(), r.ID)
	switch j := row.Value; {
	case err != nil:
		return j, err
	case !ok:
		return j, &dohost.PublicError{Message: fmt.Sprintf("there is no job %.100q", r.ID), Code: "not_found", Status: http.StatusNotFound}
	case j.State == "done":
		return j, nil
	}
	j := row.Value
	if j.Call {
		out, err := json.Marshal(r.Output)
		if err != nil {
			return j, err
		}
		if _, err := chat.Complete(ctx, d, &chat.Completion{Key: j.ID, Output: out}); err != nil && !errors.Is(err, chat.ErrNoCall) {
			return j, err
		}
	}
	j.State, j.Result = "done", r.Output
	return j, jobs.Put(ctx, d.Storage(), j)
}

// serveJobs serves the jobs as server-sent events: all of them, or with ?open those that wait for the executor.
func (d *Desk) serveJobs(w http.ResponseWriter, r *http.Request) {
	var q *dohost.Query[Job]
	if r.URL.Query().Has("open") {
		q = &dohost.Query[Job]{Index: "state", Equal: dohost.KeyOf("open")}
	}
	if err := jobs.ServeWatch(w, r, d.Storage(), q, nil); err != nil {
		http.Error(w, "cannot watch", http.StatusInternalServerError)
	}
}

// printingModel replaces a model of a provider: it prints the question, and answers with the result.
type printingModel struct{}

// Stream implements [chat.Model].
func (printingModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		for _, part := range p.Partial.Parts {
			if part.Text("toolCallId") != "" {
				yield(chat.TextDelta("t", "It is "+part.Text("output")+part.Text("errorText")+"."), nil)
				return
			}
		}
		in, err := json.Marshal(printInput{p.Messages[len(p.Messages)-1].PlainText()})
		yield(chat.ToolInput("call-1", "print", string(in)), err)
	}
}

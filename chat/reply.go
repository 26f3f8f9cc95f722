package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
)

// ErrReplyOver is the error for a chunk of a reply that has ended, was stopped, or was given up.
var ErrReplyOver = errors.New("chat: the reply has ended")

// errConcurrentSend is the error of a Send during another one of the same reply.
var errConcurrentSend = fmt.Errorf("chat: Send was called during another Send of the reply: %w", dohost.ErrMisuse)

// errStalled cancels a run without a chunk for longer than [Options.Stall].
var errStalled = errors.New("chat: the handler sent no chunk for longer than Options.Stall")

// Reply is the answer to a request, under construction. Its methods need a context of the handler, and the turn.
type Reply struct {
	ID      string // of the request, chosen by its client
	Attempt int    // number of earlier calls of the handler for this request

	k     *conversation
	l     *liveReply
	fiber *agent.Fiber[json.RawMessage]
}

// Partial returns the reply so far, from this call of the handler and earlier ones: a message of the assistant,
// without parts at first. A reply that continues an older message begins with the parts of that message. The handler
// continues from there; its next text extends an interrupted text.
func (r *Reply) Partial() Message { return r.l.partial() }

// Messages returns the messages before the reply, the oldest first: the newest limit of them, or all if
// limit is 0.
func (r *Reply) Messages(ctx context.Context, limit int) ([]Message, error) {
	return r.k.messages.newest(ctx, dohost.Query[messageRow]{End: dohost.KeyOf(r.l.row.Place), Limit: limit})
}

// Body returns the members of the request's body that are not part of the wire protocol: an object, or nil.
func (r *Reply) Body() json.RawMessage { return r.l.row.Body }

// Tools returns the client's tools, as the client described them: an array, or nil.
func (r *Reply) Tools() json.RawMessage { return r.l.row.Tools }

// SaveCheckpoint saves a value, as JSON, for later calls of the handler, and replaces the previous value: see
// [agent.SaveCheckpoint].
// The context may lack the turn if it is the handler's.
func (r *Reply) SaveCheckpoint(ctx context.Context, v any) error {
	raw, err := rawjson.Encode(v)
	if err != nil {
		return err
	}
	return r.fiber.SaveCheckpoint(ctx, raw)
}

// Checkpoint decodes into v the value last saved by SaveCheckpoint, or by [agent.SaveCheckpoint] in an earlier call of
// the handler. It reports whether there is one.
func (r *Reply) Checkpoint(v any) (bool, error) {
	raw := r.fiber.Checkpoint()
	if raw == nil || string(raw) == "null" {
		return false, nil
	}
	return true, json.Unmarshal(raw, v)
}

// Send adds a chunk to the reply. Clients receive the chunk once it is durable. Send does not wait for that. It waits
// for space on a full disk, without the turn. It must not be part of a [dohost.Transaction], and its calls for a reply
// must not overlap.
//
// Errors: [ErrReplyOver]; [dohost.ErrMisuse] during another Send of the reply; a [*dohost.LimitError] for a chunk that
// does not fit into a row; an error for a chunk that is nested more than 100 deep.
func (r *Reply) Send(ctx context.Context, c Chunk) error {
	if c.Type() == "" {
		return errors.New("chat: the zero Chunk cannot be sent")
	}
	if !r.l.sending.TryLock() {
		return errConcurrentSend
	}
	defer r.l.sending.Unlock()
	return r.l.send(ctx, c)
}

// Say adds to the current text of the reply.
//
// Errors: the errors of Send.
func (r *Reply) Say(ctx context.Context, text string) error {
	if text == "" {
		return nil
	}
	return r.Send(ctx, TextDelta("text", text))
}

// liveReply is a reply in the memory of this incarnation: its state, and the means to write and send the events of it.
type liveReply struct {
	replyState
	k          *conversation
	cancel     context.CancelCauseFunc // nil until the handler runs
	stallTimer *time.Timer             // for Stall; nil if there is no bound
	sending    sync.Mutex              // held by Reply.Send, so that concurrent calls fail instead of corrupting the merger
	forward    *forwarder              // for the agent that has asked; may be nil
	running    map[string]*toolRun     // the calls that run in tasks of this incarnation, and have time left
}

func (l *liveReply) object() *dohost.State { return l.k.object() }

func (l *liveReply) options() *Options { return l.k.options() }

func (l *liveReply) send(ctx context.Context, c Chunk) error {
	if l.ended {
		return ErrReplyOver
	}
	if l.stallTimer != nil && len(l.running) == 0 {
		l.stallTimer.Reset(l.options().Stall)
	}
	return l.sendMerged(ctx, c)
}

// sendInTurn is Reply.Send for the tasks of tools, which wait for another Send instead of failing. Another Send is only
// in progress while it waits for space.
func (l *liveReply) sendInTurn(ctx context.Context, c Chunk) error {
	for !l.sending.TryLock() {
		if err := dohost.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	defer l.sending.Unlock()
	return l.send(ctx, c)
}

// sendMerged adds the chunks that the stream makes of a chunk.
func (l *liveReply) sendMerged(ctx context.Context, c Chunk) error {
	if err := l.addAll(ctx, l.stream.Before(c)); err != nil {
		return err
	}
	return l.addAll(ctx, l.stream.Next(c))
}

func (l *liveReply) addAll(ctx context.Context, list []Chunk) error {
	for _, c := range list {
		if err := l.add(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// add writes a chunk to the log, with the row of its call, and publishes it, as soon as there is space for it.
func (l *liveReply) add(ctx context.Context, c Chunk) error {
	return l.retryNoSpace(ctx, func() error { return l.addOnce(ctx, c) })
}

// addOnce is add without waiting for space.
func (l *liveReply) addOnce(ctx context.Context, c Chunk) error {
	if l.ended {
		return ErrReplyOver
	}
	old, call, ofCall := l.afterChunk(c, time.Now().UnixMilli())
	call = decided(ctx, &old, call)
	seq := l.stream.Len() // which other events that get the turn may advance
	if !ofCall || call == old {
		row, err := l.log(ctx, seq, c)
		if err != nil {
			return err
		}
		return l.publish(ctx, c, row)
	}
	var row chunkRow
	err := dohost.Transaction(ctx, func(ctx context.Context) (err error) {
		if row, err = l.log(ctx, seq, c); err != nil {
			return err
		}
		return l.k.calls.putCall(ctx, old, call, resultIn(c))
	})
	if err != nil {
		return err
	}
	l.setCall(call)
	return l.publish(ctx, c, row)
}

// retryNoSpace calls do, and repeats it every second while there is no space for it. The stall timer is stopped during
// the waits.
func (l *liveReply) retryNoSpace(ctx context.Context, do func() error) error {
	for {
		err := do()
		if !noSpace(err) {
			return err
		}
		watched := l.stallTimer != nil && l.stallTimer.Stop()
		err = dohost.Sleep(ctx, time.Second)
		if watched {
			l.stallTimer.Reset(l.options().Stall)
		}
		switch {
		case err != nil:
			return err
		case l.ended:
			return ErrReplyOver
		}
	}
}

// log writes a chunk to the log.
func (l *liveReply) log(ctx context.Context, seq uint64, c Chunk) (row chunkRow, err error) {
	row = chunkRow{Reply: l.row.Number, Seq: seq}
	if row.JSON, err = c.MarshalJSON(); err != nil {
		return row, err
	}
	if rawjson.Nesting(row.JSON) > uimessage.MaxNesting {
		return row, fmt.Errorf("chat: chunk of type %s: %w", c.Type(), errNesting)
	}
	return row, chunkRows.Put(ctx, l.k.store(), row)
}

// apply stores the row of a call after an event, as soon as there is space for it, and applies the event.
func (l *liveReply) apply(ctx context.Context, id string, e callEvent) error {
	return l.retryNoSpace(ctx, func() error { return l.applyOnce(ctx, id, e) })
}

// applyOnce is apply without waiting for space.
func (l *liveReply) applyOnce(ctx context.Context, id string, e callEvent) error {
	if l.ended {
		return ErrReplyOver
	}
	old, row := l.after(id, time.Now().UnixMilli(), e)
	if row == old {
		return nil
	}
	if err := l.k.calls.putCall(ctx, old, row, callResult{}); err != nil {
		return err
	}
	l.setCall(row)
	return nil
}

// publish applies a logged chunk, and sends it to clients, unless the reply is Older.
func (l *liveReply) publish(ctx context.Context, c Chunk, row chunkRow) error {
	if l.chunkLogged(c) {
		if err := l.k.clients.broadcast(ctx, recoveringFrame{frameRecovering, false, l.row.ID}, l.k.clients.openConns()); err != nil {
			return err
		}
	}
	l.forward.notify()
	if call := l.calls[c.Text("toolCallId")]; call.shown() && call.ended() {
		if p, ok := l.call(call.ID); ok {
			if err := l.k.clients.broadcast(ctx, call.endFrame(p, false), l.k.clients.openConns()); err != nil {
				return err
			}
		}
	}
	if l.row.Older {
		return nil
	}
	return l.k.clients.broadcast(ctx, l.row.frame(row, false), l.k.clients.liveConns())
}

// frame is a chunk on the wire.
func (r *replyRow) frame(c chunkRow, replay bool) responseFrame {
	return responseFrame{
		Type: frameResponse, ID: r.ID, Body: string(c.JSON), Continuation: r.Continues, Replay: replay, Seq: &c.Seq,
	}
}

// Response is the result of a request.
type Response struct {
	ID        string  // of the request
	Status    Status  // a final one; only Wait returns StatusSkipped
	Error     string  // error text; also of a reply with a cancelled fiber
	Message   Message // the assistant's message; without an id if there is none
	Continues bool    // the reply continued an older message
}

// InterruptedReply is an interrupted reply.
type InterruptedReply struct {
	ID      string    // of the request
	Attempt int       // number of this attempt, from 1: the sum that MaxAttempts of Recovery bounds
	Partial Message   // the reply so far
	Created time.Time // creation of the request

	fiber *agent.Fiber[json.RawMessage]
}

// Checkpoint is [Reply.Checkpoint].
func (c *InterruptedReply) Checkpoint(v any) (bool, error) {
	return (&Reply{fiber: c.fiber}).Checkpoint(v)
}

// RecoveryAction is the next step for an interrupted reply. The zero value is RecoveryResume.
type RecoveryAction int

const (
	// RecoveryResume calls the handler again, which continues after the chunks so far.
	RecoveryResume RecoveryAction = iota
	// RecoveryRestart discards the chunks, except tool results, and the checkpoint, and calls the handler again. The
	// text disappears from clients.
	RecoveryRestart
	// RecoveryStop ends the reply with its present chunks.
	RecoveryStop
	// RecoveryDiscard ends the reply without chunks, except tool results. The text disappears from clients.
	RecoveryDiscard
)

// discards reports whether the chunks are discarded.
func (a RecoveryAction) discards() bool { return a == RecoveryRestart || a == RecoveryDiscard }

// stops reports whether the reply ends.
func (a RecoveryAction) stops() bool { return a == RecoveryStop || a == RecoveryDiscard }

// Status is the state of a request.
type Status string

// The statuses of a request. The last four are final.
const (
	StatusQueued    Status = "queued"    // queued after other requests
	StatusRunning   Status = "running"   // it is being answered, possibly by an incarnation that has ended
	StatusCompleted Status = "completed" // its handler has returned, or it waits for a client
	StatusFailed    Status = "error"     // its handler has failed, or it was not resumed
	StatusAborted   Status = "aborted"   // by the client, [Cancel], or a cancelled fiber
	StatusSkipped   Status = "skipped"   // another submission replaced it before it began
)

package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// ErrReplyOver says that nothing can be added to a reply any more: it has ended, was stopped, or given up.
var ErrReplyOver = errors.New("chat: the reply is over")

// errStalled ends a run that has sent nothing for too long.
var errStalled = errors.New("chat: the handler has sent nothing for too long")

// Reply is the answer to a request while it is being made. Its methods want a context of the handler, and
// the turn.
type Reply struct {
	ID      string // of the request, as its client knows it
	Attempt int    // how often the handler was called for it before

	k     *conversation
	l     *live
	fiber *agent.Fiber[json.RawMessage]
}

// Partial returns what the reply has said so far, in this call of the handler and in those before: a
// message of the assistant, without parts at first. A reply that goes on in an older message begins with
// the parts of that. The handler goes on from there; a text that it sends then goes on where the last one
// was cut off.
func (r *Reply) Partial() Message { return r.l.acc.message() }

// Messages returns the messages before the reply, the oldest first: the newest limit of them, or all if
// limit is 0.
func (r *Reply) Messages(ctx context.Context, limit int) ([]Message, error) {
	return r.k.newest(ctx, dohost.Query[messageRow]{End: dohost.KeyOf(r.l.row.Place), Limit: limit})
}

// Body returns what the request's body said beside what the wire knows: an object, or nil.
func (r *Reply) Body() json.RawMessage { return r.l.row.Body }

// Tools returns the tools that the client has, as it described them: an array, or nil.
func (r *Reply) Tools() json.RawMessage { return r.l.row.Tools }

// Stash keeps a value, as JSON, for later calls of the handler, in place of the one before: see
// [agent.Stash]. A context without the turn will do if it is of the handler.
func (r *Reply) Stash(ctx context.Context, v any) error {
	raw, err := encode(v)
	if err != nil {
		return err
	}
	return r.fiber.Stash(ctx, raw)
}

// Stashed decodes what Stash has last kept, or [agent.Stash] in a call before this one, into v, and says
// whether there is anything.
func (r *Reply) Stashed(v any) (bool, error) {
	raw := r.fiber.Checkpoint()
	if raw == nil || string(raw) == "null" {
		return false, nil
	}
	return true, json.Unmarshal(raw, v)
}

// Send adds a chunk to the reply. Clients see it once it is durable; Send does not wait for that, but for
// room on a full disk, with the turn given up. It must not be part of a [dohost.Transaction].
//
// Errors: [ErrReplyOver]; a [*dohost.LimitError] for a chunk that does not fit into a row; one for a chunk that is
// nested more than 100 deep.
func (r *Reply) Send(ctx context.Context, c Chunk) error {
	if c.object == nil {
		return errors.New("chat: the zero Chunk is not one")
	}
	return r.l.send(ctx, c)
}

// Say adds to the text that the reply is saying.
//
// Errors: those of Send.
func (r *Reply) Say(ctx context.Context, text string) error {
	if text == "" {
		return nil
	}
	return r.Send(ctx, TextDelta("text", text))
}

// live is a reply that this incarnation works on.
type live struct {
	k      *conversation
	row    replyRow
	acc    *accumulator
	st     *stitcher
	cancel context.CancelCauseFunc // nil until the handler runs
	watch  *time.Timer             // of the stall; nil if there is no bound
	quiet  bool                    // clients believe that it is recovering
	over   bool
	older  map[string]callRecord // of the calls that the message had before the reply, and that waited
	tools  map[string]bool       // that the client of the request has, by name
}

func (l *live) send(ctx context.Context, c Chunk) error {
	if l.over {
		return ErrReplyOver
	}
	if l.watch != nil {
		l.watch.Reset(l.k.class.options.Stall)
	}
	return l.stitch(ctx, c)
}

// stitch adds what a chunk becomes in the stream of the reply.
func (l *live) stitch(ctx context.Context, c Chunk) error {
	if err := l.addAll(ctx, l.st.before(c)); err != nil {
		return err
	}
	return l.addAll(ctx, l.st.next(c))
}

func (l *live) addAll(ctx context.Context, list []Chunk) error {
	for _, c := range list {
		if err := l.add(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// add writes a chunk to the log, and shows it.
func (l *live) add(ctx context.Context, c Chunk) error {
	return l.whenRoom(ctx, func() error {
		row, err := l.log(ctx, l.acc.chunks, c) // which others that have the turn meanwhile move
		if err != nil {
			return err
		}
		return l.show(ctx, c, row)
	})
}

// whenRoom does something for a reply: if there is no room for it, again when there is. Nobody has stalled
// meanwhile.
func (l *live) whenRoom(ctx context.Context, do func() error) error {
	for {
		err := do()
		if !errors.Is(err, dohost.ErrNoSpace) && !errors.Is(err, dohost.ErrOverloaded) {
			return err
		}
		watched := l.watch != nil && l.watch.Stop()
		err = dohost.Sleep(ctx, time.Second)
		if watched {
			l.watch.Reset(l.k.class.options.Stall)
		}
		switch {
		case err != nil:
			return err
		case l.over:
			return ErrReplyOver
		}
	}
}

// log writes a chunk to the log.
func (l *live) log(ctx context.Context, seq uint64, c Chunk) (row chunkRow, err error) {
	row = chunkRow{Reply: l.row.Number, Seq: seq}
	if row.JSON, err = encode(c.object); err != nil {
		return row, err
	}
	if nesting(row.JSON) > maxChunkNesting {
		return row, fmt.Errorf("a chunk of the type %s: %w", c.Type(), errNesting)
	}
	return row, chunkRows.Put(ctx, l.k.store(), row)
}

// note changes the row of the reply.
func (l *live) note(ctx context.Context, change func(*replyRow)) error {
	return l.whenRoom(ctx, func() error {
		row := l.row
		change(&row)
		err := replies.Put(ctx, l.k.store(), row)
		if err == nil {
			l.row = row
		}
		return err
	})
}

// with is a list with a text in it, which nobody else has.
func with(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(slices.Clone(list), s)
}

// held are the calls without an outcome that have not begun to run. One that is cut off has done nothing.
func (l *live) held() (calls []Part) {
	for _, p := range l.acc.msg.Parts {
		id := p.Text("toolCallId")
		if isTool(p) && !settled(p) && !p.is("providerExecuted") && slices.Contains(l.row.Held, id) && !slices.Contains(l.row.Begun, id) {
			calls = append(calls, p)
		}
	}
	return calls
}

// repairs are those of what the reply has said. If it goes on it does so with the calls that have not begun.
func (l *live) repairs(goesOn bool) (add []Chunk, waits bool) {
	m := l.acc.message()
	all, waits := repairs(&m, l.clientRuns, l.row.Begun)
	held := map[string]bool{}
	for _, p := range l.held() {
		held[p.Text("toolCallId")] = true
	}
	for _, c := range all {
		isHeld := held[c.Text("toolCallId")]
		if isHeld && goesOn {
			continue
		}
		if isHeld {
			c = c.with("errorText", notRun)
		}
		if p, ok := l.acc.call(c.Text("toolCallId")); ok && !l.acc.called[c.Text("toolCallId")] {
			add = append(add, called(p)) // it was made in the message before
		}
		add = append(add, c)
	}
	if len(add) > 0 && l.acc.chunks == 0 {
		add = slices.Insert(add, 0, l.st.start(newChunk("start")))
	}
	return add, waits
}

// mayRun says that there are calls that have not begun, and for which nobody else is waited.
func (l *live) mayRun() bool {
	return slices.ContainsFunc(l.held(), func(p Part) bool {
		s := p.Text("state")
		return s == approvalResponded || s == inputAvailable && !l.clientRuns(p)
	})
}

// show adds a chunk of the log to the message, and shows it to clients.
func (l *live) show(ctx context.Context, c Chunk, row chunkRow) error {
	l.acc.add(c)
	if l.quiet {
		l.quiet = false
		if err := l.k.tellAll(ctx, recoveringFrame{frameRecovering, false, l.row.ID}, nil); err != nil {
			return err
		}
	}
	return l.k.tellAll(ctx, l.row.frame(row, false), l.k.isCatching)
}

// frame is a chunk on the wire.
func (r *replyRow) frame(c chunkRow, replay bool) responseFrame {
	return responseFrame{
		Type: frameResponse, ID: r.ID, Body: string(c.JSON), Continuation: r.Continues, Replay: replay, Seq: &c.Seq,
	}
}

// Response is how a request has ended.
type Response struct {
	ID        string  // of the request
	Status    Status  // a final one; skipped is told by Wait alone
	Error     string  // why it has failed; also of one whose fiber was cancelled
	Message   Message // what was said; without an id if nothing was
	Continues bool    // it went on in a message that was there before
}

// Cut is a reply that was cut off.
type Cut struct {
	ID      string    // of the request
	Attempt int       // the one that is about to begin, from 1, in a row of those that got no further
	Partial Message   // what was said
	Created time.Time // when the request came

	fiber *agent.Fiber[json.RawMessage]
}

// Stashed is [Reply.Stashed].
func (c *Cut) Stashed(v any) (bool, error) { return (&Reply{fiber: c.fiber}).Stashed(v) }

// Decision is what becomes of a reply that was cut off. The zero Decision goes on with it from what it
// has said.
type Decision struct {
	// Drop forgets what was said, but for the outcomes of tools, and what was stashed. Clients see it vanish.
	Drop bool
	// Stop does not go on: what was said, unless it is dropped, is the reply.
	Stop bool
}

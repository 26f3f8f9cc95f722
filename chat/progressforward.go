package chat

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
)

// forwarder sends the chunks of a reply to the asking agent while that agent has clients. Its task has the turn, except while
// it waits for the caller or for a chunk. A nil forwarder has no effect.
type forwarder struct {
	l     *liveReply
	next  uint64        // the number of the next chunk that the caller lacks, as far as this agent knows
	known bool          // next is from the caller
	sent  uint64        // the end of the batch that is on its way; 0 if there is none
	taken progressTaken // the last answer of the caller
	runs  bool          // the task runs
	again bool          // a client of the caller has connected
	over  bool          // the run of the handler has ended
	wake  chan struct{} // has a token after a new chunk
}

// newForwarder returns the forwarder of a reply; nil if its clients see no progress.
func newForwarder(l *liveReply) *forwarder {
	if a := l.row.Asked; a == nil || a.Hidden || a.Cut {
		return nil
	}
	return &forwarder{l: l, next: l.row.Asked.Next, wake: make(chan struct{}, 1)}
}

// start starts the task, or makes it ask again.
func (f *forwarder) start(ctx context.Context) error {
	if f == nil || f.over || f.l.ended {
		return nil
	}
	f.again = true
	f.notify()
	if f.runs {
		return nil
	}
	err := f.l.object().GoImmediately(ctx, "progress", func(ctx context.Context) error {
		defer func() { f.runs = false }()
		return f.run(ctx)
	})
	f.runs = err == nil
	if errors.Is(err, dohost.ErrOverloaded) {
		return nil // clients get the rest with the answer
	}
	return err
}

// notify reports a new chunk to the task.
func (f *forwarder) notify() {
	if f == nil {
		return
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// stop ends the task.
func (f *forwarder) stop() {
	if f != nil {
		f.over = true
		f.notify()
	}
}

// run sends batches until the caller wants no more, or the run of the handler has ended. The first batch is empty, and gets the number
// of the next chunk.
func (f *forwarder) run(ctx context.Context) error {
	for !f.over && !f.l.ended {
		var list []progressChunk
		more := !f.known
		if f.known {
			var err error
			if list, more, err = f.l.chunksAfter(ctx, f.next, 0, true, maxProgressBatch); err != nil {
				return err
			}
		}
		if len(list) > 0 || f.again || !f.known {
			f.again = false
			switch err := f.send(ctx, list); {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil, f.taken.Quiet && !f.again:
				return nil
			}
		}
		if !more {
			if _, _, err := dohost.Recv(ctx, f.wake); err != nil {
				return err
			}
		}
		if err := dohost.Sleep(ctx, f.taken.Every); err != nil {
			return err
		}
	}
	return nil
}

// send sends a batch. Its chunks are durable: the host sends a call after the earlier writes of the object. After an error it sends the same batch again: the caller may have it.
func (f *forwarder) send(ctx context.Context, list []progressChunk) error {
	if len(list) > 0 {
		f.sent = list[len(list)-1].Number + 1
	}
	a := f.l.row.Asked
	retry := dohost.RetryPolicy{MaxAttempts: -1, MaxDelay: 30 * time.Second, ShouldRetry: func(err error, _ int) bool {
		return !finalAskError(err) && !f.over && !f.l.ended
	}}
	err := dohost.Retry(ctx, &retry, func(ctx context.Context) error {
		taken, err := progressProcedure.Call(ctx, f.l.object(), a.caller(), sentProgress{a.Key, list}, nil)
		if err == nil {
			f.taken = taken
		}
		return err
	})
	if err != nil {
		return err
	}
	f.known, f.sent, f.next = true, 0, max(f.next, f.taken.Next)
	return nil
}

// chunksAfter returns the chunks of the request from a number on: those in the return address, and those in the log. With joins
// it joins the deltas of a text, except those before the number at with those after it. more reports whether the limit of
// bytes has left some out.
func (l *liveReply) chunksAfter(ctx context.Context, next, at uint64, joins bool, limit int) (list []progressChunk, more bool, err error) {
	a := l.row.Asked
	for _, c := range a.Rest {
		if c.Number >= next {
			list, limit = append(list, c), limit-len(c.JSON)
		}
	}
	from := l.row.From
	if next > a.Base {
		from = max(from, next-a.Base)
	}
	of := dohost.KeyOf(l.row.Number)
	var deltas uimessage.Deltas
	joined := false // the last chunk of list may get more deltas
	flush := func() {
		if joined {
			list[len(list)-1].JSON = deltas.JSON()
		}
	}
	for row, err := range chunkRows.All(ctx, l.k.store(), &dohost.Query[chunkRow]{Start: of + dohost.KeyOf(from), End: of.PrefixEnd()}) {
		if err != nil {
			return nil, false, err
		}
		if limit -= len(row.Value.JSON); limit < 0 && len(list) > 0 {
			more = true
			break
		}
		var c Chunk
		if err := json.Unmarshal(row.Value.JSON, &c); err != nil {
			return nil, false, err
		}
		number := a.Base + row.Value.Seq
		if row.Value.Seq == l.row.From && l.row.From > 0 { // a restart has deleted the chunks before it
			row.Value.JSON = []byte(restartChunk)
		}
		if joined && number != at && deltas.Join(c) {
			list[len(list)-1].Number = number
			continue
		}
		flush()
		list, joined = append(list, progressChunk{number, row.Value.JSON}), joins && deltas.Begin(c)
	}
	flush()
	return list, more, nil
}

// addressAtEnd returns the return address after the end of the reply, with the chunks that the caller may lack. The caller may have got
// the batch that is on its way, or none of the chunks, so no chunk of the rest has deltas from both sides of the batch's end. If an
// earlier incarnation has sent batches, no deltas are joined.
func (l *liveReply) addressAtEnd(ctx context.Context) (*returnAddress, error) {
	if l.row.Asked == nil || l.row.Asked.Hidden || l.row.Asked.Cut {
		return l.row.Asked, nil
	}
	a, f := *l.row.Asked, l.forward
	wanted, known, at := true, false, uint64(0)
	if f != nil {
		a.Next, known, at = max(a.Next, f.next), f.known, f.sent
		wanted = !known || !f.taken.Full && (at > 0 || f.next > 0 || !f.taken.Quiet)
	}
	rest := []progressChunk(nil)
	if wanted {
		var err error
		if rest, a.Cut, err = l.chunksAfter(ctx, a.Next, at, known, maxRest); err != nil {
			return nil, err
		}
		if len(rest) == 1 && len(rest[0].JSON) > maxRest {
			rest, a.Cut = nil, true
		}
	}
	a.Rest, a.Base = rest, a.Base+l.stream.Len()
	if a.Cut { // the caller ignores the number if it has got all chunks
		a.Rest = append(a.Rest, progressChunk{a.Base - 1, []byte(cutChunk)})
	}
	return &a, nil
}

// addResults adds the results of the calls that the message waited for, which no reply's log contains. Clients that have seen
// nothing of the request do not need them.
func (r *returnAddress) addResults(m *Message) {
	if r.Hidden || r.Cut || r.Next == 0 && len(r.Rest) == 0 {
		return
	}
	size := 0
	for _, c := range r.Rest {
		size += len(c.JSON)
	}
	for _, c := range uimessage.ResultsInLastStep(m) {
		raw := rawjson.MustEncode(c)
		if size += len(raw); size > maxRest {
			raw, r.Cut = []byte(cutChunk), true
		}
		r.Rest = append(r.Rest, progressChunk{r.Base, raw})
		if r.Base++; r.Cut {
			return
		}
	}
}

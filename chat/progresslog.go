package chat

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/uimessage"
	"github.com/dohost/dohost/internal/agenttool"
)

// progressHead is the state of the log of a run at the caller. It exists until its call is deleted, or its log.
type progressHead struct {
	Key     string // of the call
	Created int64  // of the call
	Next    uint64 // the number of the next chunk of the request
	Places  uint64 // chunks in the log
	Rows    int
	Bytes   int  // of the frames of the chunks
	Full    bool // the log gets no more chunks
}

// progressRow is a batch of chunks in the log of a run.
type progressRow struct {
	Key    string
	First  uint64 // the place of the first chunk, from 1
	Chunks [][]byte
}

var progressHeads = dohost.Collection[progressHead]{
	Name:    "dohost.chat.progress",
	Key:     func(h progressHead) string { return h.Key },
	Indexes: []dohost.Index[progressHead]{{Name: "created", Of: func(h progressHead) dohost.Key { return dohost.KeyOf(h.Created) }}},
}

var progressRows = dohost.Collection[progressRow]{
	Name:  "dohost.chat.progresslog",
	Key:   func(r progressRow) string { return string(dohost.KeyOf(r.Key) + dohost.KeyOf(r.First)) },
	Blind: true, // places are never used again
}

// progressTaken is the answer of the caller to a batch.
type progressTaken struct {
	Next  uint64        // the number of the next chunk that the caller lacks
	Quiet bool          // the caller wants no chunks
	Full  bool          // and never will
	Every time.Duration // the time until the next batch
}

// takeProgress adds chunks of a request to the log of its run, and sends them to clients. last is set for chunks that arrive
// with or just before the answer: they complete a log, although no client may be connected now.
func (k *sentRequests) takeProgress(ctx context.Context, key string, list []progressChunk, last bool) (t progressTaken, err error) {
	call, ok, err := k.calls.externalCall(ctx, key)
	if err != nil || !ok || call.ended() || !call.shown() {
		return progressTaken{Quiet: true, Full: true}, err
	}
	stored, _, err := progressHeads.Get(ctx, k.store(), key)
	if err != nil {
		return t, err
	}
	head, open := stored.Value, k.clients.openConns()
	t = progressTaken{Next: head.Next, Full: head.Full, Every: progressInterval << (head.Rows / 32)}
	t.Quiet = head.Full || len(open) == 0 && (head.Places == 0 || !last)
	list = slices.DeleteFunc(slices.Clone(list), func(c progressChunk) bool { return c.Number < head.Next })
	if t.Quiet || len(list) == 0 {
		return t, nil
	}
	if head.Places == 0 {
		head = progressHead{Key: key, Created: call.Created}
		if free, err := k.spaceForLog(ctx); err != nil || !free {
			return progressTaken{Quiet: true, Full: true}, err
		}
	}
	row := progressRow{Key: key, First: head.Places + 1}
	head = head.with(&call, list, &row)
	err = dohost.Transaction(ctx, func(ctx context.Context) error {
		if err := progressRows.Put(ctx, k.store(), row); err != nil {
			return err
		}
		return progressHeads.Put(ctx, k.store(), head)
	})
	if err != nil {
		return t, err
	}
	for i, c := range row.Chunks {
		if err := k.clients.broadcast(ctx, call.chunkFrame(row.First+uint64(i), c, false), open); err != nil {
			return t, err
		}
	}
	t.Next, t.Full, t.Quiet = head.Next, head.Full, head.Full
	return t, nil
}

// with returns the head after the chunks of a batch, and adds them to its row.
func (h progressHead) with(call *callRow, list []progressChunk, row *progressRow) progressHead {
	for _, c := range list {
		size := progressFrame + len(call.ID) + len(c.JSON)
		if h.Full = h.Rows >= maxProgressRows || h.Bytes+size > maxProgressBytes; h.Full {
			c.JSON = []byte(cutChunk)
		}
		h.Next, h.Places, h.Bytes = c.Number+1, h.Places+1, h.Bytes+size
		row.Chunks = append(row.Chunks, c.JSON)
		if h.Full {
			break
		}
	}
	h.Rows++
	return h
}

// spaceForLog makes space for the log of another run, and reports whether there is any.
func (k *sentRequests) spaceForLog(ctx context.Context) (free bool, err error) {
	heads, err := progressHeads.List(ctx, k.store(), &dohost.Query[progressHead]{Index: "created"})
	if err != nil || len(heads) < maxProgressRuns {
		return err == nil, err
	}
	for _, h := range heads {
		call, ok, err := k.calls.externalCall(ctx, h.Key)
		if err != nil {
			return false, err
		}
		if ok && call.ended() {
			return true, call.deleteProgress(ctx, k.store())
		}
	}
	return false, nil
}

// deleteProgress deletes the log of the run of a call, if it has one: at most maxProgressRows + 1 rows, and those of all runs fit into a batch.
func (r *callRow) deleteProgress(ctx context.Context, s *dohost.Storage) error {
	if !r.shown() {
		return nil
	}
	if ok, err := progressHeads.Delete(ctx, s, r.Key); err != nil || !ok {
		return err
	}
	of := dohost.KeyOf(r.Key)
	for row, err := range progressRows.All(ctx, s, &dohost.Query[progressRow]{Start: of, End: of.PrefixEnd()}) {
		if err != nil {
			return err
		}
		if _, err := progressRows.Delete(ctx, s, row.Key); err != nil {
			return err
		}
	}
	return nil
}

// sendRunStart sends clients the first event of the run of a call.
func (k *sentRequests) sendRunStart(ctx context.Context, row *callRow) error {
	if !row.shown() {
		return nil
	}
	return k.clients.broadcast(ctx, row.startFrame(false), k.clients.openConns())
}

// sendRunEnd sends clients the last event of the run of a call that has ended. m is the message of the call.
func (k *sentRequests) sendRunEnd(ctx context.Context, m *Message, id string) error {
	row, ok, err := callRows.Get(ctx, k.store(), string(dohost.KeyOf(m.ID)+callKey(id)))
	if err != nil || !ok || !row.Value.shown() || !row.Value.ended() {
		return err
	}
	p, ok := uimessage.Call(m, id)
	if !ok {
		return nil
	}
	return k.clients.broadcast(ctx, row.Value.endFrame(p, false), k.clients.openConns())
}

// replayRuns sends a new connection the events of the newest runs, and asks for the progress of those that have not ended.
func (k *sentRequests) replayRuns(ctx context.Context, conn *agent.Conn) error {
	if !conn.Protocol() {
		return nil
	}
	rows, err := callRows.List(ctx, k.store(), &dohost.Query[callRow]{Index: "asks", Reverse: true, Limit: maxReplayedRuns})
	if err != nil {
		return err
	}
	slices.Reverse(rows)
	var m Message // one at a time: the messages of 64 runs may have 128 MiB
	for _, r := range rows {
		call := &r.Value
		if err := k.clients.send(ctx, conn, call.startFrame(true)); err != nil {
			return err
		}
		if err := k.replayLog(ctx, conn, call); err != nil {
			return err
		}
		if !call.ended() {
			if err := k.watchAsked(ctx, call); err != nil {
				return err
			}
			continue
		}
		if m.ID != call.Message {
			if m, err = k.calls.messageOfCall(ctx, call); err != nil {
				return err
			}
		}
		if p, ok := uimessage.Call(&m, call.ID); ok {
			if err := k.clients.send(ctx, conn, call.endFrame(p, true)); err != nil {
				return err
			}
		}
	}
	return nil
}

// replayLog sends a new connection the log of a run.
func (k *sentRequests) replayLog(ctx context.Context, conn *agent.Conn, call *callRow) error {
	if _, ok, err := progressHeads.Get(ctx, k.store(), call.Key); err != nil || !ok {
		return err
	}
	of := dohost.KeyOf(call.Key)
	for row, err := range progressRows.All(ctx, k.store(), &dohost.Query[progressRow]{Start: of, End: of.PrefixEnd()}) {
		if err != nil {
			return err
		}
		for i, c := range row.Value.Chunks {
			if err := k.clients.send(ctx, conn, call.chunkFrame(row.Value.First+uint64(i), c, true)); err != nil {
				return err
			}
		}
	}
	return nil
}

// watchAsked starts a task that asks an asked agent for the progress of a call, unless one runs.
func (k *sentRequests) watchAsked(ctx context.Context, call *callRow) error {
	to, err := dohost.ParseID(call.Asks)
	if err != nil || k.watching[call.Key] {
		return err
	}
	key, request := call.Key, agenttool.RequestID(call.Key)
	err = k.object().GoImmediately(ctx, "progress", func(ctx context.Context) error {
		defer delete(k.watching, key)
		err := callAgent(ctx, k.shared, to, watchProcedure, request)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		_ = err // the agent may have been deleted; clients get the rest with the answer
		return nil
	})
	switch {
	case errors.Is(err, dohost.ErrOverloaded):
		return nil
	case err != nil:
		return err
	}
	if k.watching == nil {
		k.watching = map[string]bool{}
	}
	k.watching[key] = true
	return nil
}

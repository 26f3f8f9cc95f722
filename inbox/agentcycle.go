package inbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
)

// group returns the group of a message: one for each request, and with EachSender one for each sender.
func (a *Agent) group(m Message) string {
	switch {
	case m.Request != "":
		return string(dohost.KeyOf("request") + dohost.KeyOf(m.From) + dohost.KeyOf(m.Request))
	case a.EachSender:
		return string(dohost.KeyOf("sender") + dohost.KeyOf(m.From))
	}
	return ""
}

// build returns the messages for the model. Messages that wait and are not in the cycle are not among them, so the model answers no
// message twice.
func (a *Agent) build(
	ctx context.Context, s *dohost.Storage, messages *dohost.Collection[Message], pending []dohost.Row[Message],
) (list []chat.Message, err error) {
	if a.History != nil {
		if list, err = (&history{messages, a.Name}).context(ctx, s); err != nil {
			return nil, err
		}
		return appendCycle(list, pending), nil
	}
	left := cmp.Or(a.MaxBytes, defaultBytes)
	q := &dohost.Query[Message]{
		Index: conversationIndex, Prefix: nameKey(a.Name), Reverse: true, Limit: cmp.Or(a.MaxMessages, defaultMessages),
	}
	for row, err := range messages.All(ctx, s, q) {
		if err != nil {
			return nil, err
		}
		m := row.Value
		if left -= len(m.Content); left < 0 {
			break
		}
		list = append(list, m.inPrompt(a.Name))
	}
	slices.Reverse(list)
	return appendCycle(list, pending), nil
}

// appendCycle appends the messages of a cycle to a prompt.
func appendCycle(list []chat.Message, pending []dohost.Row[Message]) []chat.Message {
	for _, row := range pending {
		list = append(list, row.Value.inPrompt(row.Value.To))
	}
	return list
}

// inPrompt returns a message in the prompt of an agent that has it in its conversation.
func (m *Message) inPrompt(agent string) chat.Message {
	return chat.Text(m.ID, m.roleFor(agent), m.Content)
}

// roleFor returns the role of a message in the prompt of an agent.
func (m *Message) roleFor(agent string) chat.Role {
	switch {
	case m.From == agent && m.To != agent:
		return chat.RoleAssistant
	case m.Role == chat.RoleSystem:
		return chat.RoleSystem
	}
	return chat.RoleUser
}

// generationRow has the generation of the last attempt at a cycle that has begun to answer. The response needs it if all its
// answers were recorded in that attempt.
type generationRow struct {
	Place, Generation string
	// Paused is set if the attempt has ended as postponed. The next one continues the generation.
	Paused bool `msgpack:",omitempty"`
}

var generations = dohost.Collection[generationRow]{
	Name: "dohost.inbox.generations",
	Key:  func(r generationRow) string { return r.Place },
}

// placeOf returns the place of a cycle: all repetitions of the cycle have it.
func placeOf(ctx context.Context) string {
	sum := sha256.Sum256([]byte(dohost.WorkPositionOf(ctx).Name()))
	return hex.EncodeToString(sum[:16])
}

// writerKey is the context key of the writer of the chunks of an attempt.
type writerKey struct{}

// chunkWriter is the writer of an attempt. It begins a generation with the first chunk.
type chunkWriter struct {
	store      *dohost.Storage
	place      string
	generation string
	to         *chat.ChunkWriter[chat.StoredChunk]
}

// onChunk returns the function that stores chunks, or nil.
func (a *Agent) onChunk() func(context.Context, chat.Chunk) error {
	if a.Chunks == nil {
		return nil
	}
	return func(ctx context.Context, c chat.Chunk) (err error) {
		w := ctx.Value(writerKey{}).(*chunkWriter)
		if w.to == nil {
			if err := a.openChunks(ctx, w); err != nil {
				return err
			}
		}
		err = w.to.Write(ctx, c)
		if _, tooLarge := errors.AsType[*dohost.LimitError](err); tooLarge {
			return nil
		}
		return err
	}
}

// openChunks continues the generation of a postponed attempt, or begins another one.
func (a *Agent) openChunks(ctx context.Context, w *chunkWriter) error {
	row, _, err := generations.Get(ctx, w.store, w.place)
	if err != nil {
		return err
	}
	if w.generation = row.Value.Generation; row.Value.Paused {
		w.to, err = a.Chunks.Continue(ctx, w.store, w.generation)
	}
	if w.to == nil { // also if the program has deleted the chunks
		w.generation = "gen_" + ulid.Make().String()
		w.to, err = a.Chunks.Replay(w.store, w.generation)
	}
	if err != nil {
		return err
	}
	return generations.Put(ctx, w.store, generationRow{Place: w.place, Generation: w.generation})
}

// pauseChunks makes the next attempt continue the generation of this one.
func (a *Agent) pauseChunks(ctx context.Context, w *chunkWriter) error {
	if w.to == nil {
		return nil
	}
	return generations.Put(ctx, w.store, generationRow{w.place, w.generation, true})
}

// budgetPause is the time between two attempts while a budget is exhausted.
const budgetPause = 5 * time.Minute

// generate asks the model. It postpones the rows while a budget is exhausted: another error would count as a failed attempt.
func (a *Agent) generate(ctx context.Context, of Ref, messages *dohost.Collection[Message], c *Cycle[Message]) (r Response, err error) {
	if err := a.reviewQuestions(ctx, of, messages, c.Pending); err != nil {
		return r, err
	}
	w := &chunkWriter{store: of.Storage(), place: placeOf(ctx)}
	ctx = context.WithValue(ctx, writerKey{}, w)
	by := newRequester(ctx, of, a.Name, messages.Name, c.Pending)
	ctx = context.WithValue(ctx, requesterKey{}, by)
	if ctx, err = a.inGeneration(ctx, w); err != nil {
		return r, err
	}
	r.Text, err = a.run().Run(ctx, of, prompt{c.Messages, appendCycle(nil, c.Pending)})
	if _, exhausted := errors.AsType[*chat.BudgetError](err); exhausted {
		pause := budgetPause
		over, askErr := a.askForDecision(ctx, of, messages, c.Pending)
		if askErr != nil {
			return r, askErr
		}
		if _, other := errors.AsType[otherBudget](err); !over && !other { // a grant, or another day, since the call was refused
			pause = 0
		}
		err = by.postponed(pause, by.deadline, err)
	}
	if _, later := errors.AsType[*agent.PostponeError](err); later {
		return r, errors.Join(by.rest(err), a.pauseChunks(ctx, w))
	}
	if err != nil {
		return r, err
	}
	if len(r.Text) > maxContent {
		return r, &dohost.LimitError{Subject: "the response of the agent " + a.Name, Size: len(r.Text), Limit: maxContent}
	}
	row, _, err := generations.Get(ctx, w.store, w.place)
	r.Generation = row.Value.Generation
	return r, err
}

// respond writes the response to messages, and marks them as processed. A request that has a response gets no second one.
func (a *Agent) respond(
	ctx context.Context, s *dohost.Storage, messages *dohost.Collection[Message], r Response, pending []dohost.Row[Message],
) error {
	now := time.Now()
	last := pending[len(pending)-1].Value
	reply := Message{
		ID: "msg_" + ulid.Make().String(), Role: chat.RoleAssistant, Content: r.Text, From: a.Name, To: last.From,
		Created: now, Processed: now, InReplyTo: last.Request, Generation: r.Generation,
	}
	for _, row := range pending {
		if row.Value.From != reply.To {
			reply.To = ""
		}
		_, err := messages.Update(ctx, s, row.Key, func(m *Message) error {
			m.Processed = now
			return nil
		})
		if err != nil {
			return err
		}
	}
	if last.Request != "" {
		if _, answered, err := Reply(ctx, s, messages, last); err != nil || answered {
			return err
		}
	}
	return errors.Join(messages.Insert(ctx, s, reply), a.finish(ctx, s, r.Generation))
}

// finish ends the chunks of a response.
func (a *Agent) finish(ctx context.Context, s *dohost.Storage, generation string) error {
	if a.Chunks == nil || generation == "" {
		return nil
	}
	w, err := a.Chunks.Continue(ctx, s, generation)
	if err == nil {
		err = w.Finish(ctx)
	}
	if err != nil {
		return fmt.Errorf("the chunks of the response: %w", err)
	}
	_, err = generations.Delete(ctx, s, placeOf(ctx))
	return err
}

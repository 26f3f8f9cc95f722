package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/pointtest"
	"github.com/dohost/dohost/ledger"
)

// stampingModel calls the tool "stamp" for each prompt, and then answers as an answerModel.
type stampingModel struct{ answerModel }

func (m *stampingModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	if len(p.Partial.Parts) > 0 {
		return m.answerModel.Stream(ctx, p)
	}
	last := p.Messages[len(p.Messages)-1].ID
	return func(yield func(chat.Chunk, error) bool) {
		yield(chat.ToolInput("call", "stamp", fmt.Sprintf(`{"of":%q}`, last)), nil)
	}
}

// TestInboxAtEveryPoint sends three messages together, a fourth during the cycle for them, and two requests later. Each message is
// answered exactly once, and each request has a response of its own, wherever the incarnation or the process ends. A tool with an
// effect outside has one effect for each cycle. No client calls the agent after the messages are sent.
func TestInboxAtEveryPoint(t *testing.T) {
	service := &dohosttest.FakeService{Idempotent: true}
	m := &stampingModel{}
	stamp := chat.Tool{ToolSpec: chat.ToolSpec{Name: "stamp"}, Policy: ledger.PolicyIdempotent, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
		c, _ := chat.CallFrom(ctx)
		return "stamped", dohost.Await(ctx, func(ctx context.Context) error { return service.Call(ctx, c.Key, "stamp") })
	}}
	chunks := chat.StoredChunks("chunks", nil)
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{
		Name: "clerk", Model: m, Tools: []chat.Tool{stamp}, Chunks: chunks,
	})
	s := dohosttest.Scenario{
		Classes:  []dohost.Class{deskClass(inbox.On(in))},
		Services: []*dohosttest.FakeService{service},
		Reset:    func() { m.took() },
		Places:   pointtest.Places(),
		FullDisk: true,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			err := sendOnce(ctx, h, fromAda("1", "2", "3")...)
			h.Advance(300 * time.Millisecond)
			err = errors.Join(err, sendOnce(ctx, h, fromAda("4")...))
			h.Advance(5 * time.Second)
			return errors.Join(err, sendOnce(ctx, h, inbox.Message{ID: "5", Content: "5", From: "a", Request: "r5"},
				inbox.Message{ID: "6", Content: "6", From: "b", Request: "r6"}))
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error { return checkAnswered(ctx, h, service, chunks) },
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 20, 60))
}

// sendOnce sends messages once, however often the call is repeated.
func sendOnce(ctx context.Context, h *dohosttest.Host, list ...inbox.Message) error {
	return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
		return desks.Get(h, "a").Do(ctx, func(ctx context.Context, d *desk) error {
			for _, m := range list {
				m.To = "clerk"
				_, ok, err := messages.Get(ctx, d.Storage(), m.ID)
				if err == nil && !ok {
					_, err = inbox.Send(ctx, d.Storage(), &messages, m)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func checkAnswered(ctx context.Context, h *dohosttest.Host, service *dohosttest.FakeService, chunks *chat.ChunkSink[chat.StoredChunk]) error {
	return desks.Get(h, "a").Do(ctx, func(ctx context.Context, d *desk) error {
		rows, err := messages.List(ctx, d.Storage(), &dohost.Query[inbox.Message]{Index: "conversation", Prefix: dohost.KeyOf("clerk")})
		if err != nil {
			return err
		}
		var answered, requests []string
		cycles, processed := 0, 0
		for _, row := range rows {
			m := row.Value
			if m.Role == chat.RoleUser {
				processed++
				continue
			}
			cycles++
			answered = append(answered, strings.Split(m.Content, "+")...)
			requests = append(requests, m.InReplyTo)
			stored, err := chunks.Read(ctx, d.Storage(), m.Generation)
			if err != nil || len(stored) == 0 || string(stored[len(stored)-1].Value.Chunk) != `{"type":"finish"}` {
				return fmt.Errorf("the generation of %q has %d chunks: %w", m.Content, len(stored), err)
			}
		}
		slices.Sort(answered) // a batch that was interrupted twice waits until others have begun
		slices.Sort(requests)
		pending, err := messages.Count(ctx, d.Storage(), &dohost.Query[inbox.Message]{Index: "pending"})
		tasks, err2 := d.Rows().List(ctx, nil)
		switch {
		case err != nil || err2 != nil:
			return errors.Join(err, err2)
		case strings.Join(answered, " ") != "1 2 3 4 5 6" || processed != 6 || pending > 0 || len(tasks) > 0:
			return fmt.Errorf("answered %q, %d processed, %d wait, tasks %+v", answered, processed, pending, tasks)
		case !slices.Equal(requests[len(requests)-2:], []string{"r5", "r6"}) || requests[max(0, len(requests)-3)] != "":
			return fmt.Errorf("responses to the requests %q", requests)
		case service.Total() != cycles:
			return fmt.Errorf("%d effects in %d cycles", service.Total(), cycles)
		}
		return nil
	})
}

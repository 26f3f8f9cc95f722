package chat_test

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// brokenModel is a model that ends its goroutine with end, before or after it has yielded a chunk.
type brokenModel struct {
	late bool
	end  func()
}

func (m *brokenModel) Stream(context.Context, *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	if !m.late {
		m.end()
	}
	return func(yield func(chat.Chunk, error) bool) {
		yield(chunk("text-start", map[string]any{"id": "t"}), nil)
		yield(chunk("text-delta", map[string]any{"id": "t", "delta": "so "}), nil)
		m.end()
	}
}

func TestModelThatDoesNotReturnFailsItsReplyAlone(t *testing.T) {
	for name, end := range map[string]func(){
		"panic":      func() { panic("bad") },
		"goexit":     runtime.Goexit,
		"nil access": func() { var p *chat.Prompt; _ = p.System },
	} {
		for when, late := range map[string]bool{"before a chunk": false, "after a chunk": true} {
			t.Run(name+" "+when, func(t *testing.T) {
				var got error
				m := &brokenModel{late: late, end: end}
				class := countingClassOf(&countingState{}, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
					got = chat.Answer(ctx, r, m, nil)
					return got
				}})
				dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
					r := newReader(h, testID, "r")
					if err := r.connect(t.Context()); err != nil {
						t.Fatal(err)
					}
					for _, id := range []string{"one", "two"} { // the object still answers afterwards
						got = nil
						r.ask(t.Context(), id, "go", nil)
						if err := r.until(t.Context(), func() bool { return r.ended[id].Done }, nil); err != nil {
							t.Fatal(err)
						}
						p, ok := errors.AsType[*chat.ModelPanic](got)
						if !ok || len(p.Stack) == 0 || (name == "goexit") != (p.Value == nil) {
							t.Errorf("%s: the reply failed with %v", id, got)
						}
					}
				})
			})
		}
	}
}

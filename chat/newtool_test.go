package chat_test

import (
	"context"
	"encoding/json"
	"iter"

	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// stay is the input of a tool.
type stay struct {
	Room   int    `json:"room" jsonschema:"the number of the room"`
	Nights int    `json:"nights,omitempty"`
	Guest  string `json:"guest"`
}

// inputModel makes one call of the tool book with an input.
type inputModel struct{ input string }

// Stream implements [chat.Model].
func (m inputModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		if len(p.Partial.Parts) == 0 {
			yield(chat.ToolInput("book-1", "book", m.input), nil)
		}
	}
}

func TestNewTool(t *testing.T) {
	book := func(_ context.Context, s stay) (map[string]int, error) { return map[string]int{s.Guest: s.Room}, nil }
	tool := chat.NewTool("book", "books a room", book, nil)
	var parameters map[string]any
	if err := json.Unmarshal(tool.Parameters, &parameters); err != nil || tool.Name != "book" || tool.Description != "books a room" {
		t.Errorf("%+v, %v", tool.ToolSpec, err)
	}
	for _, want := range []string{`"type":"object"`, `"room"`, `"description":"the number of the room"`, `"required":["room","guest"]`} {
		if !strings.Contains(string(tool.Parameters), want) {
			t.Errorf("the parameters %s lack %s", tool.Parameters, want)
		}
	}
	asked := 0
	withApproval := chat.NewTool("book", "", book, &chat.ToolOptions[stay, map[string]int]{
		Approve: func(_ context.Context, s stay) (bool, error) {
			asked++
			return s.Nights > 3, nil
		},
	})
	echo := func(_ context.Context, in json.RawMessage) (json.RawMessage, error) { return in, nil }
	withParameters := chat.NewTool("book", "", echo, &chat.ToolOptions[json.RawMessage, json.RawMessage]{
		Parameters: json.RawMessage(`{"type":"object","required":["room"]}`),
	})
	for name, c := range map[string]struct {
		tool  chat.Tool
		input string
		want  string
		asked int
	}{
		"valid":              {tool, `{"room":7,"guest":"ada"}`, `output-available {"ada":7}`, 0},
		"no room":            {tool, `{"guest":"ada"}`, "output-error the input does not match the parameters of the tool: ", 0},
		"a text for a room":  {tool, `{"room":"7","guest":"ada"}`, "output-error the input does not match the parameters of the tool: ", 0},
		"an unknown field":   {tool, `{"room":7,"guest":"ada","pet":true}`, "output-error the input does not match the parameters of the tool: ", 0},
		"null":               {tool, `null`, "output-error the input does not match the parameters of the tool: ", 0},
		"a large number":     {tool, `{"room":1e30,"guest":"ada"}`, "output-error the input does not match the parameters of the tool: ", 0},
		"own parameters":     {withParameters, `{"room":7,"pet":"a"}`, `output-available {"room":7,"pet":"a"}`, 0},
		"no room in them":    {withParameters, `{"pet":"a"}`, "output-error the input does not match the parameters of the tool: ", 0},
		"no approval needed": {withApproval, `{"room":7,"guest":"ada","nights":2}`, `output-available {"ada":7}`, 1},
		"an approval needed": {withApproval, `{"room":7,"guest":"ada","nights":4}`, "approval-requested ", 1},
		"invalid, and no approval requested": {
			withApproval, `{"room":7,"nights":4}`, "output-error the input does not match the parameters of the tool: ", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked = 0
			runTools(t, inputModel{c.input}, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{c.tool} }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(time.Second)
				answer, states := answerOf(t, ctx, h)
				if got := resultOf(answer, "book"); !strings.HasPrefix(got, c.want) || asked != c.asked ||
					strings.HasPrefix(got, "output-error") != (states["book"] == "failed") {
					t.Errorf("%s, %v, want %s; asked %d times", got, states, c.want, asked)
				}
			})
		})
	}
}

// TestNewToolErrors has the errors of Answer for tools that cannot work.
func TestNewToolErrors(t *testing.T) {
	type endless struct{ C chan int }
	for want, tool := range map[string]chat.Tool{
		"the input is of type string, want a struct": chat.NewTool("book", "", func(context.Context, string) (int, error) { return 0, nil }, nil),
		"the Parameters: ": chat.NewTool("book", "", func(context.Context, stay) (int, error) { return 0, nil },
			&chat.ToolOptions[stay, int]{Parameters: json.RawMessage(`{"type":`)}),
		"the Parameters": chat.NewTool("book", "", func(context.Context, stay) (int, error) { return 0, nil },
			&chat.ToolOptions[stay, int]{Parameters: json.RawMessage(`{"pattern":"("}`)}),
		"the function is nil": chat.NewTool[stay, int]("book", "", nil, nil),
		"chan":                chat.NewTool("book", "", func(context.Context, endless) (int, error) { return 0, nil }, nil),
		"PolicyReconcile needs Find": chat.NewTool("book", "", func(context.Context, stay) (int, error) { return 0, nil },
			&chat.ToolOptions[stay, int]{Policy: ledger.PolicyReconcile}),
	} {
		runTools(t, inputModel{"{}"}, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{tool} }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
				r, _, err := chat.Wait(ctx, p, "one")
				if !strings.HasPrefix(r.Error, `chat: tool "book": `) || !strings.Contains(r.Error, want) {
					t.Errorf("%q, want %q", r.Error, want)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestToolNames has the errors of Answer for tools that a model cannot distinguish, and the result of a call of a tool that does not
// exist.
func TestToolNames(t *testing.T) {
	book := chat.NewTool("book", "", func(context.Context, stay) (int, error) { return 0, nil }, nil)
	client := chat.Tool{ToolSpec: chat.ToolSpec{Name: "book"}}
	other := book
	other.Name = "cancel"
	for name, c := range map[string]struct {
		tools  []chat.Tool
		failed string // the error of the reply
		result string // of the call
	}{
		"one name":                {[]chat.Tool{book, other, book}, `chat: two tools have the name "book"`, ""},
		"one name, with a client": {[]chat.Tool{book, client}, `chat: two tools have the name "book"`, ""},
		"no name":                 {[]chat.Tool{book, {Run: book.Run}}, "chat: tool 1 has no name", ""},
		"no such tool":            {[]chat.Tool{other}, "", `output-error there is no tool "book"`},
		"no tools":                {nil, "", `output-error there is no tool "book"`},
	} {
		t.Run(name, func(t *testing.T) {
			runTools(t, inputModel{"{}"}, chat.Options{}, func(*countingAgent) []chat.Tool { return c.tools }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
					r, _, err := chat.Wait(ctx, p, "one")
					if r.Error != c.failed {
						t.Errorf("the reply failed with %q, want %q", r.Error, c.failed)
					}
					return err
				})
				if c.failed != "" {
					return
				}
				if m, _ := answerOf(t, ctx, h); resultOf(m, "book") != c.result {
					t.Errorf("%q, want %q", resultOf(m, "book"), c.result)
				}
			})
		})
	}
}

// TestNewToolFind asks the other side about an interrupted call, with a typed input.
func TestNewToolFind(t *testing.T) {
	tool := chat.NewTool("book", "", func(ctx context.Context, s stay) (string, error) {
		return "run", dohost.Sleep(ctx, time.Second)
	}, &chat.ToolOptions[stay, string]{
		Policy: ledger.PolicyReconcile,
		Find: func(_ context.Context, s stay) (string, ledger.Answer, error) {
			return "found for " + s.Guest, ledger.AnswerDone, nil
		},
	})
	runTools(t, inputModel{`{"room":7,"guest":"ada"}`}, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{tool} }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(500 * time.Millisecond)
		h.Evict(testID, dohost.EndFence)
		h.Advance(time.Minute)
		if answer, _ := answerOf(t, ctx, h); resultOf(answer, "book") != `output-available "found for ada"` {
			t.Errorf("%s", resultOf(answer, "book"))
		}
	})
}

package assistant_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/docs"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/examples/assistant"
)

var folder = fstest.MapFS{"guide.md": {Data: []byte("# Eviction\n\nAn object leaves memory when it is idle. The next call wakes it.\n")}}

const wantAnswer = "An object leaves memory when it is idle. The next call wakes it."

// TestAssistantAnswersAtEveryPoint asks two questions, and ends the incarnation at every point of the answers: each
// question gets one answer, in the words of the file.
func TestAssistantAnswersAtEveryPoint(t *testing.T) {
	ask := func(ctx context.Context, h *dohosttest.Host, id string) error {
		return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
			return assistant.Assistants.Get(h, "a").Do(ctx, func(ctx context.Context, a *assistant.Assistant) error {
				_, err := chat.Ask(ctx, a, []chat.Message{chat.Text(id, chat.RoleUser, "When does an object leave memory?")}, &chat.AskOptions{ID: id})
				if err != nil {
					return err
				}
				_, _, err = chat.Wait(ctx, a, id)
				return err
			})
		})
	}
	dohosttest.EveryPoint(t, dohosttest.Scenario{
		Classes: []dohost.Class{assistant.Class(folder, 10*time.Millisecond)},
		Places:  []dohost.Place{dohost.PlaceCommitted, dohost.PlaceAwaited},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			if err := ask(ctx, h, "one"); err != nil {
				return err
			}
			return ask(ctx, h, "two")
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			return assistant.Assistants.Get(h, "a").Do(ctx, func(ctx context.Context, a *assistant.Assistant) error {
				list, err := chat.Messages(ctx, a, 0)
				if err != nil {
					return err
				}
				var texts []string
				for _, m := range list {
					texts = append(texts, m.PlainText())
				}
				const q = "When does an object leave memory?"
				if got, want := strings.Join(texts, "|"), strings.Join([]string{q, wantAnswer, q, wantAnswer}, "|"); got != want {
					return fmt.Errorf("%q", got)
				}
				return nil
			})
		},
	})
}

// docs/chat.md contains this code.
func TestDocsContainAssistantCode(t *testing.T) {
	text, err := docs.Files.ReadFile("chat.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("assistant.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```go\n")
	block, _, _ = strings.Cut(block, "```")
	pieces := strings.Split(block, "\n\n")
	for _, p := range pieces {
		if !strings.Contains(string(code), strings.TrimSpace(p)) {
			t.Errorf("not in assistant.go:\n%s", p)
		}
	}
	if len(pieces) != 3 {
		t.Errorf("%d pieces", len(pieces))
	}
}

func TestAssistantRefusesFolderWithoutText(t *testing.T) {
	if _, err := dohost.Open(t.TempDir(), nil, assistant.Class(fstest.MapFS{}, 0)); err == nil || !strings.Contains(err.Error(), "no text") {
		t.Error(err)
	}
}

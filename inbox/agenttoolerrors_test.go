package inbox_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// TestAgentToolWithForgedPath inserts a request with a path that no agent tool makes. Its agent asks no other one, and its model gets a
// short error.
func TestAgentToolWithForgedPath(t *testing.T) {
	for name, path := range map[string][]inbox.Address{
		"many addresses": make([]inbox.Address, 20_000),
		"long addresses": slices.Repeat([]inbox.Address{{Object: strings.Repeat("x", 100_000)}}, 6),
	} {
		t.Run(name, func(t *testing.T) {
			runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				m := inbox.Message{
					ID: "1", From: "ada", To: "a", Role: chat.RoleUser, Content: "b: hi", Request: "r1", Created: time.Now(), Path: path,
				}
				inDesk(t, ctx, h, func(ctx context.Context, d *desk) error { return messages.Insert(ctx, d.Storage(), m) })
				h.Advance(10 * time.Second)
				got := replyTo(t, ctx, h, "a", "r1")
				want := fmt.Sprintf("a heard (no agent was asked: %d agents would ask each other, the limit is 5: ", len(path)+1)
				if !strings.HasPrefix(got, want) || len(got) > 15_000 {
					t.Errorf("%d bytes: %.200q", len(got), got)
				}
			}, team(nil, "a", "b")...)
		})
	}
}

package pool

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/docs"
)

// TestExamplesOfTheWire sends the requests in docs/wire.md, and compares the answers with those of the page.
func TestExamplesOfTheWire(t *testing.T) {
	page, err := docs.Files.ReadFile("wire.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Pools\n")
	section, _, _ = strings.Cut(section, "\n## ")
	seen := map[string]bool{}
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		answer := ""
		for line := range strings.Lines(section) {
			line, example := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "    ")
			if method, arg, found := strings.Cut(line, " {"); example && found && !strings.Contains(method, " ") && method != "200" {
				seen[method] = true
				answer = f.answer(ctx, method, "{"+arg)
			} else if example && line != answer {
				t.Errorf("the page has\n%s\nand the pool answers\n%s", line, answer)
			}
		}
	})
	if len(seen) != 16 {
		t.Errorf("the page has examples of %v", seen)
	}
}

// answer calls a method with JSON, and returns the status and the answer.
func (f *fixture) answer(ctx context.Context, method, arg string) string {
	out, err := f.host.Invoke(ctx, f.pool().ID(), method, json.RawMessage(arg))
	if err == nil {
		return "200 " + string(out)
	}
	body, status := dohost.DescribeError(err)
	return fmt.Sprint(status, " ", strings.TrimPrefix(body.Message, "pool: "))
}

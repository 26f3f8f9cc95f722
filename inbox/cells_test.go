package inbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/celltest"
)

// cellOfDesk puts the desks whose names begin with far into another cell.
func cellOfDesk(id dohost.ID) int {
	if strings.HasPrefix(id.Name, "far") {
		return 1
	}
	return 0
}

// farTeam returns a class whose agent a asks the agent b of the desk far, which asks the agent c of the desk near. Each one thinks for longer than
// two waits for a response.
func farTeam() []dohost.Class {
	var entries []agent.Entry[desk]
	asked := map[string]string{"b": "far", "c": "near"}
	for _, name := range []string{"a", "b", "c"} {
		a := &inbox.Agent{Name: name, Model: &relay{name: name, wait: 40 * time.Second}}
		for other, object := range asked {
			if other == name {
				continue
			}
			tool := (&inbox.Agent{Name: other}).Tool(&messages)
			tool.To = func(context.Context, inbox.Ref, json.RawMessage) (dohost.ID, error) {
				return dohost.ID{Class: string(desks), Name: object}, nil
			}
			tool.Timeout = time.Hour
			a.Agents = append(a.Agents, tool)
		}
		entries = append(entries, inbox.On(inbox.ForMessages[desk](&messages, a)))
	}
	return []dohost.Class{deskClass(entries...)}
}

// askTeam sends a text to the agent a of the desk near, and returns the response and the number of requests of agents in each desk.
func askTeam(ctx context.Context, c *celltest.Cells, text string) (response string, requests map[string]int, err error) {
	asked := inbox.Message{ID: "1", From: "ada", To: "a", Content: text, Request: "r1"}
	near := desks.Get(c.At(0), "near")
	err = c.Retry(ctx, func(ctx context.Context) error {
		return near.Do(ctx, func(ctx context.Context, d *desk) error {
			if _, stored, err := messages.Get(ctx, d.Storage(), asked.ID); err != nil || stored {
				return err
			}
			_, err := inbox.Send(ctx, d.Storage(), &messages, asked)
			return err
		})
	})
	if err != nil {
		return "", nil, err
	}
	err = c.Until(ctx, func(ctx context.Context) (done bool, err error) {
		err = near.Do(ctx, func(ctx context.Context, d *desk) error {
			m, ok, err := inbox.Reply(ctx, d.Storage(), &messages, asked)
			response, done = m.Content, ok
			return err
		})
		return done, err
	})
	requests = map[string]int{}
	for cell, name := range []string{"near", "far"} {
		if err == nil {
			err = desks.Get(c.At(cell), name).Do(ctx, func(ctx context.Context, d *desk) (err error) {
				requests[name], err = messages.Count(ctx, d.Storage(), &dohost.Query[inbox.Message]{Where: func(m inbox.Message) bool { return len(m.Path) > 0 }})
				return err
			})
		}
	}
	return response, requests, err
}

// TestAgentToolAcrossCellsAtEveryCall has agents of two cells that ask each other. Each call between the cells is interrupted.
func TestAgentToolAcrossCellsAtEveryCall(t *testing.T) {
	celltest.EveryCall(t, &celltest.Scenario{
		Classes: farTeam, Cell: cellOfDesk,
		Run: func(ctx context.Context, c *celltest.Cells) error {
			response, requests, err := askTeam(ctx, c, "b: c: hi")
			if want := "a heard (b heard (c says hi))"; err == nil && response != want {
				err = fmt.Errorf("the response is %q, want %q", response, want)
			}
			if got := fmt.Sprint(requests); err == nil && got != "map[far:1 near:1]" {
				err = fmt.Errorf("requests: %s", got)
			}
			if d := c.Longest(); err == nil && d > 16*time.Second {
				err = fmt.Errorf("a call took %v", d)
			}
			return err
		},
	})
}

// TestResponseThatIsLargeAcrossCells has a response that is larger than the result of a call from another cell may be.
func TestResponseThatIsLargeAcrossCells(t *testing.T) {
	celltest.Once(t, &celltest.Scenario{
		Classes: farTeam, Cell: cellOfDesk,
		Run: func(ctx context.Context, c *celltest.Cells) error {
			text := strings.Repeat("<\"é", 200<<10) // most of 1 MiB, and more as JSON
			response, _, err := askTeam(ctx, c, "b: "+text)
			if want := "a heard (b says " + text + ")"; err == nil && response != want {
				err = fmt.Errorf("the response has %d bytes, want %d", len(response), len(want))
			}
			return err
		},
	})
}

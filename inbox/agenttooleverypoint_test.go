package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/pointtest"
)

// TestAgentToolAtEveryPoint has a planner that asks a researcher twice in one step, with equal questions, and a third time in
// the next step. Wherever an incarnation of either or the process ends, the researcher has exactly three requests, answers each once, and
// the planner has all answers. No response is work. The two are in one object, and in two objects.
func TestAgentToolAtEveryPoint(t *testing.T) {
	for name, researcher := range map[string]string{"one object": "a", "two objects": "other"} {
		t.Run(name, func(t *testing.T) {
			log := &asked{}
			set := func(a *inbox.Agent, tools []inbox.AgentTool) {
				a.Model = &relay{name: a.Name, then: "b: z", log: log}
				if researcher != "a" {
					elsewhere(researcher)(a, tools)
				}
			}
			s := dohosttest.Scenario{
				Classes:  []dohost.Class{deskClass(team(set, "a", "b")...)},
				Reset:    func() { log.took() },
				Places:   pointtest.Places(),
				FullDisk: true,
				Run: func(ctx context.Context, h *dohosttest.Host) error {
					return askOnce(ctx, h, "a", inbox.Message{ID: "1", To: "a", Content: "b: x & b: x"})
				},
				Check: func(ctx context.Context, h *dohosttest.Host) error {
					return errors.Join(checkResearcher(ctx, h, researcher), checkPlanner(ctx, h), log.check())
				},
			}
			dohosttest.EveryPoint(t, pointtest.Scenario(s, 15, 40))
		})
	}
}

// askOnce sends requests of ada to an object, however often the call is repeated.
func askOnce(ctx context.Context, h *dohosttest.Host, object string, list ...inbox.Message) error {
	return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
		return desks.Get(h, object).Do(ctx, func(ctx context.Context, d *desk) error {
			for _, m := range list {
				m.From, m.Request = "ada", "r"+m.ID
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

// check returns an error if a response was work of an agent.
func (l *asked) check() error {
	for _, text := range l.took() {
		if text != "a got b: x & b: x" && text != "b got x" && text != "b got z" {
			return fmt.Errorf("the prompt %q", text)
		}
	}
	return nil
}

// checkResearcher compares the requests that the researcher has, and their responses.
func checkResearcher(ctx context.Context, h *dohosttest.Host, object string) error {
	return desks.Get(h, object).Do(ctx, func(ctx context.Context, d *desk) error {
		rows, err := messages.List(ctx, d.Storage(), &dohost.Query[inbox.Message]{Where: func(m inbox.Message) bool { return m.To == "b" || m.From == "b" }})
		if err != nil {
			return err
		}
		var asked, answered []string
		responses := map[string]int{}
		for _, row := range rows {
			if m := row.Value; m.To == "b" {
				asked = append(asked, m.Content)
			} else {
				answered = append(answered, m.Content)
				responses[m.InReplyTo]++
			}
		}
		if len(asked) != 3 || strings.Count(strings.Join(asked, ""), "x") != 2 || len(answered) != 3 || len(responses) != 3 {
			return fmt.Errorf("the requests %q, the responses %q to %v", asked, answered, responses)
		}
		return nil
	})
}

// checkPlanner compares the response of the planner.
func checkPlanner(ctx context.Context, h *dohosttest.Host) error {
	return desks.Get(h, "a").Do(ctx, func(ctx context.Context, d *desk) error {
		m, _, err := inbox.Reply(ctx, d.Storage(), &messages, inbox.Message{From: "ada", To: "a", Request: "r1"})
		tasks, err2 := d.Rows().List(ctx, nil)
		if m.Content != "a heard (b says x, b says x, b says z)" || len(tasks) > 0 {
			return fmt.Errorf("the response %q, tasks %+v, %w", m.Content, tasks, errors.Join(err, err2))
		}
		return errors.Join(err, err2)
	})
}

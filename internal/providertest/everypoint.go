package providertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// containsToolResult reports whether a request contains the tool's result, or that there is none.
func containsToolResult(asked []byte) bool {
	return bytes.Contains(asked, []byte("metres")) || bytes.Contains(asked, []byte("interrupted"))
}

// Case is a reply to interrupt at every point.
type Case struct {
	Strategy chat.Strategy
	// Once expects each answer with any text to be billed once, since it is fetched again.
	Once bool
	// Tool makes the reply call a tool.
	Tool bool
	// Drop makes recovery drop the text of an interrupted reply. No text of a dropped answer may appear again.
	Drop bool
	// RefusePrefill makes the double refuse requests that end with a message of the assistant.
	RefusePrefill bool
	// Places are the places of the ends; nil means all.
	Places []dohost.Place
}

// EveryPoint interrupts a reply of a double at every point, and expects it complete: a prefix of the words of
// each generation, and all of the last; one message; no refused request; and no unnecessary generation.
func EveryPoint(t *testing.T, c Case, make New) {
	t.Helper()
	d := &Double{Pace: 10 * time.Millisecond, RefusePrefill: c.RefusePrefill}
	words := 8
	if c.Tool {
		d.Plan, words = toolPlan, 4
	}
	model, err := make(Config{Double: d, Key: Key, Strategy: c.Strategy})
	if err != nil {
		t.Fatal(err)
	}
	var runs, joined, fetched, tools, frames int
	w := &watcher{}
	class := Class(model, chat.Options{}, func() { tools++ })
	var dropped []string
	if c.Drop {
		class = droppingClass(model, func(text string) { dropped = append(dropped, text) })
	}
	drops := 0
	dohosttest.EveryPoint(t, dohosttest.Scenario{
		Classes: []dohost.Class{class},
		Places:  c.Places,
		Pairs:   20,
		Reset:   func() { d.Reset(); runs++; tools = 0; dropped = nil },
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			if !c.Drop { // a client would see words vanish
				h.Client(func(context.Context) error { return w.watch(ctx, h, "a") })
			}
			r, err := Ask(ctx, h, "a", "one")
			if err == nil && r.Status != chat.StatusCompleted {
				err = fmt.Errorf("it is %s: %s", r.Status, r.Error)
			}
			return err
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			list, err := Messages(ctx, h, "a")
			if err != nil {
				return err
			}
			if refused := d.Refused(); len(refused) > 0 || len(list) != 2 {
				return fmt.Errorf("%d messages; refused: %q", len(list), refused)
			}
			for _, old := range dropped {
				if word, _, _ := strings.Cut(old, "w"); strings.HasPrefix(list[1].PlainText(), word+"w") {
					return fmt.Errorf("%q repeats dropped text %q", list[1].PlainText(), old)
				}
			}
			drops += len(dropped)
			if seen := w.texts["one"]; !strings.HasPrefix(list[1].PlainText(), seen) {
				return fmt.Errorf("clients received %q of %q", seen, list[1].PlainText())
			}
			frames += w.frames
			if err := checkUsage(ctx, h, len(d.Generations())); err != nil {
				return err
			}
			n, err := c.check(d, &list[1], words, tools)
			joined += n
			fetched += d.Fetched()
			return err
		},
	})
	t.Logf("%d runs, %d frames: %d texts of more than one generation, %d dropped, %d times an answer was fetched",
		runs, frames, joined, drops, fetched)
	if !c.Once && joined+drops == 0 || c.Once && fetched == 0 || c.Drop && drops == 0 {
		t.Error("no ending was in the middle of an answer")
	}
}

// check returns an error for a wrong message, and the number of steps with text of several generations.
func (c Case) check(d *Double, m *chat.Message, words, tools int) (joined int, err error) {
	var steps []string
	for _, p := range m.Parts {
		switch p.Type() {
		case "step-start":
			steps = append(steps, "")
		case "text":
			steps[len(steps)-1] += p.Text("text")
		}
		if state := p.Text("state"); strings.HasPrefix(p.Type(), "tool-") && state != "output-available" && state != "output-error" {
			return 0, fmt.Errorf("a call is %s", state)
		}
	}
	var all []int
	for i, s := range steps {
		last := words
		if c.Tool && i < len(steps)-1 {
			last = 3
		}
		of, err := SplitText(s, last)
		if err != nil {
			return joined, fmt.Errorf("step %d of %q: %w", i, steps, err)
		}
		if len(of) > 1 {
			joined++
		}
		all = append(all, of...)
	}
	if c.Tool && len(steps) < 2 || tools > 1 || !slices.IsSorted(all) {
		return joined, fmt.Errorf("%d steps, the tool ran %d times, generations %v", len(steps), tools, all)
	}
	billed := len(d.Generations())
	if len(all) == 0 || all[len(all)-1] != billed-1 {
		return joined, fmt.Errorf("%d generations are billed, the text is of %v", billed, all)
	}
	if c.Once && (joined > 0 || c.Tool && len(steps) > 2) {
		return joined, errors.New("an answer with received text was requested again")
	}
	return joined, nil
}

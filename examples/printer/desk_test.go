package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// inDesk runs f in an event of a desk, in virtual time.
func inDesk(t *testing.T, f func(ctx context.Context, h *dohosttest.Host, do func(func(context.Context, *Desk) error) error)) {
	t.Helper()
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{Class()}}, func(t *testing.T, h *dohosttest.Host) {
		f(t.Context(), h, func(g func(context.Context, *Desk) error) error { return Desks.Get(h, "front").Do(t.Context(), g) })
	})
}

// TestReportAfterTheLimit has an executor that is slower than the limit of the call: the job ends, and the answer stays.
func TestReportAfterTheLimit(t *testing.T) {
	inDesk(t, func(ctx context.Context, h *dohosttest.Host, do func(func(context.Context, *Desk) error) error) {
		err := do(func(ctx context.Context, d *Desk) error {
			_, err := d.Ask(ctx, Question{ID: "q", Text: "a card"})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		h.Advance(25 * time.Hour)
		var texts []string
		for range 2 { // the executor repeats its report
			err = do(func(ctx context.Context, d *Desk) error {
				open, err := jobs.List(ctx, d.Storage(), nil)
				if err != nil || len(open) != 1 {
					return fmt.Errorf("%d jobs: %w", len(open), err)
				}
				j, err := d.Report(ctx, Result{ID: open[0].Value.ID, Output: "on page 1"})
				if err == nil && j.State != "done" {
					err = fmt.Errorf("the job is %s", j.State)
				}
				list, failed := chat.Messages(ctx, d, 0)
				texts = nil
				for _, m := range list {
					texts = append(texts, m.PlainText())
				}
				return errors.Join(err, failed)
			})
			if err != nil {
				t.Error(err)
			}
		}
		if len(texts) != 2 || !strings.Contains(texts[1], "The call was not completed in time") {
			t.Errorf("%q", texts)
		}
	})
}

// TestJobNeedsAnID adds jobs without an id, and with one that is too long.
func TestJobNeedsAnID(t *testing.T) {
	inDesk(t, func(ctx context.Context, h *dohosttest.Host, do func(func(context.Context, *Desk) error) error) {
		for n, fits := range map[int]bool{0: false, 1: true, maxID: true, maxID + 1: false} {
			err := do(func(ctx context.Context, d *Desk) error {
				_, err := d.Add(ctx, Job{ID: strings.Repeat("i", n), Text: "a card"})
				return err
			})
			public, refused := errors.AsType[*dohost.PublicError](err)
			if refused == fits || refused && public.Code != "invalid" || !refused && err != nil {
				t.Errorf("an id of %d bytes: %v", n, err)
			}
		}
	})
}

// TestJobThatIsTooLargeIsRefused adds the largest job, and one that is larger: its report would not fit into the feed.
func TestJobThatIsTooLargeIsRefused(t *testing.T) {
	inDesk(t, func(ctx context.Context, h *dohosttest.Host, do func(func(context.Context, *Desk) error) error) {
		for n, fits := range map[int]bool{maxText: true, maxText + 1: false, 1200 << 10: false} {
			id := fmt.Sprint(n)
			err := do(func(ctx context.Context, d *Desk) error {
				_, err := d.Add(ctx, Job{ID: id, Text: strings.Repeat("<", n)})
				return err
			})
			public, refused := errors.AsType[*dohost.PublicError](err)
			if refused == fits || refused && public.Code != "too_large" || !refused && err != nil {
				t.Errorf("a text of %d bytes: %v", n, err)
			}
			if err != nil {
				continue
			}
			err = do(func(ctx context.Context, d *Desk) error {
				j, err := d.Report(ctx, Result{ID: id, Output: strings.Repeat("<", maxText)})
				if err == nil && j.State != "done" {
					err = fmt.Errorf("the job is %s", j.State)
				}
				return err
			})
			if err != nil {
				t.Errorf("the report of a text of %d bytes: %v", n, err)
			}
			if row, err := json.Marshal(Job{Text: strings.Repeat("<", n)}); err != nil || len(row) > 1<<20 {
				t.Errorf("the event of the job has %d bytes: %v", len(row), err)
			}
		}
	})
}

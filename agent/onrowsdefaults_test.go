package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// TestOnRowsDefaults has 120 rows, and no options: a call of OnRowBatch and of OnRowGroups has 50 of them, and one of OnRows one. One call
// runs at a time.
func TestOnRowsDefaults(t *testing.T) {
	const rows = 120
	var calls []int // the numbers of rows
	running, most := 0, 0
	take := func(d *depot, ctx context.Context, list []dohost.Row[parcel]) error {
		calls = append(calls, len(list))
		running++
		most = max(most, running)
		err := dohost.Sleep(ctx, time.Second)
		running--
		for _, row := range list {
			_, err2 := parcels.Delete(ctx, d.Storage(), row.Key)
			err = errors.Join(err, err2)
		}
		return err
	}
	takeOne := func(d *depot, ctx context.Context, row dohost.Row[parcel]) error {
		return take(d, ctx, []dohost.Row[parcel]{row})
	}
	for name, c := range map[string]struct {
		entry agent.Entry[depot]
		want  string
	}{
		"OnRowBatch":  {agent.OnRowBatch(&parcels, "all", take, nil), "[50 50 20]"},
		"OnRowGroups": {agent.OnRowGroups(&parcels, "all", func(parcel) string { return "" }, take, nil), "[50 50 20]"},
		"OnRows":      {agent.OnRows(&parcels, "all", takeOne, nil), fmt.Sprint(slices.Repeat([]int{1}, rows))},
	} {
		t.Run(name, func(t *testing.T) {
			calls, most = nil, 0
			class := agent.Bind(depots, func(_ context.Context, a *agent.Agent[struct{}]) (*depot, error) { return &depot{a}, nil }, nil, c.entry)
			dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
				insertParcels(t, h, rows)
				h.Advance(5 * time.Minute)
			})
			if fmt.Sprint(calls) != c.want || most != 1 {
				t.Errorf("calls with %v rows, want %s; %d at a time", calls, c.want, most)
			}
		})
	}
}

// insertParcels inserts rows in one event.
func insertParcels(t *testing.T, h *dohosttest.Host, rows int) {
	t.Helper()
	err := depots.Get(h, "a").Do(t.Context(), func(ctx context.Context, d *depot) error {
		for i := range rows {
			if err := parcels.Insert(ctx, d.Storage(), parcel{fmt.Sprintf("%05d", i)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOnRowsRetryPolicy records the delays between the calls for a row that all fail. Each has at least three quarters of its bound.
func TestOnRowsRetryPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		policy dohost.RetryPolicy
		bounds []time.Duration
	}{
		"default":       {dohost.RetryPolicy{}, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}},
		"one attempt":   {dohost.RetryPolicy{MaxAttempts: 1}, nil},
		"maximum":       {dohost.RetryPolicy{MaxAttempts: 4, BaseDelay: 4 * time.Minute}, []time.Duration{4 * time.Minute, 5 * time.Minute, 5 * time.Minute}},
		"small maximum": {dohost.RetryPolicy{MaxAttempts: 3, BaseDelay: time.Hour, MaxDelay: time.Minute}, []time.Duration{time.Minute, time.Minute}},
		"large delay":   {dohost.RetryPolicy{MaxAttempts: 3, BaseDelay: time.Hour}, []time.Duration{time.Hour, time.Hour}},
		"no maximum":    {dohost.RetryPolicy{MaxAttempts: 4, BaseDelay: 4 * time.Minute, MaxDelay: -1}, []time.Duration{4 * time.Minute, 8 * time.Minute, 16 * time.Minute}},
		"no delay":      {dohost.RetryPolicy{MaxAttempts: 60, BaseDelay: -1, MaxDelay: -1}, make([]time.Duration, 59)},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []time.Time
			o := &postOffice{options: &agent.RowsOptions{Retry: c.policy}}
			o.deliver = func(*postman, context.Context, letter) error {
				calls = append(calls, time.Now())
				return errTest
			}
			runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				if err := post(ctx, h, "bad"); err != nil {
					t.Fatal(err)
				}
				h.Advance(24 * time.Hour)
			})
			if len(calls) != len(c.bounds)+1 {
				t.Fatalf("%d calls, want %d", len(calls), len(c.bounds)+1)
			}
			for i, bound := range c.bounds {
				if d := calls[i+1].Sub(calls[i]); d < bound*3/4-time.Millisecond || d > bound+time.Millisecond {
					t.Errorf("delay %d is %v, want at most %v, and not much less", i+1, d, bound)
				}
			}
		})
	}
}

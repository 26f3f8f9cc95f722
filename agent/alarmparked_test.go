package agent

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// damagedAgent has a schedule with an unreadable row.
type damagedAgent struct{ *Agent[struct{}] }

// TestAlarmParkedEndsTheIncarnation makes the alarm of an agent fail until it is parked. A task keeps the agent
// in memory, so nothing else would end its incarnation; the next one sets the alarm again.
func TestAlarmParkedEndsTheIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ns = dohost.Namespace[damagedAgent]("damaged")
		const run = Callback[int]("run")
		var mu sync.Mutex // guards parked
		var parked []dohost.ParkedAlarm
		reported := func() []dohost.ParkedAlarm {
			mu.Lock()
			defer mu.Unlock()
			return parked
		}
		class := Bind(ns, func(_ context.Context, a *Agent[struct{}]) (*damagedAgent, error) { return &damagedAgent{a}, nil }, nil,
			OnSchedule(run, func(*damagedAgent, context.Context, int) error { return nil }))
		h, err := dohost.Open("data", kernel.OnFS(&dohost.Options{Listener: dohost.Listener{
			AlarmParked: func(p dohost.ParkedAlarm) {
				mu.Lock()
				defer mu.Unlock()
				parked = append(parked, p)
			},
		}}, objectstore.NewMemFS()), class)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		id := ns.Get(h, "a").ID()
		err = ns.Get(h, "a").Do(t.Context(), func(ctx context.Context, a *damagedAgent) error {
			if _, err := Schedule(ctx, a, After(time.Minute), run, 1, nil); err != nil {
				return err
			}
			rt, space := kernel.OfState(a.Object()), objectstore.SpaceCollection
			for row, err := range rt.Scan(ctx, objectstore.Bounds{Space: space}) {
				if err != nil {
					return err
				}
				if bytes.HasPrefix(row.Key, []byte("r"+scheduleRows.Name)) {
					return errors.Join(rt.Put(ctx, space, bytes.Clone(row.Key), []byte{99}, false),
						a.Object().Go(ctx, "wait", func(ctx context.Context) error { return dohost.Sleep(ctx, 100*time.Hour) }))
				}
			}
			return errors.New("it has no schedule")
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(90 * time.Second)
		if !h.IsLive(id) || len(reported()) > 0 {
			t.Errorf("while it fails: live %v, parked %+v", h.IsLive(id), reported())
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := reported(); len(got) != 1 || got[0].Reason != dohost.ParkedFailed || h.IsLive(id) {
			t.Errorf("live %v, parked %+v", h.IsLive(id), got)
		}
	})
}

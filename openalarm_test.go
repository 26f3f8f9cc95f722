package dohost_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/objectstore"
)

type alarmed struct{ st *dohost.State }

const alarmedObjects dohost.Namespace[alarmed] = "alarmed"

func (a *alarmed) setAlarm(ctx context.Context, at time.Time) error { return a.st.SetAlarm(ctx, at) }

func (a *alarmed) count(ctx context.Context, n int) (int, error) {
	if err := dohost.Add(ctx, a.st.Storage(), "n", n); err != nil {
		return 0, err
	}
	n, _, err := dohost.Get[int](ctx, a.st.Storage(), "n")
	return n, err
}

// TestAlarmThatIsDueAtOpenCallsObjects opens a host on objects with due alarms. Their handlers call another object, which may be before Open
// returns. The race detector finds a host that is not complete then.
func TestAlarmThatIsDueAtOpenCallsObjects(t *testing.T) {
	class := dohost.Bind(alarmedObjects, func(_ context.Context, st *dohost.State) (*alarmed, error) { return &alarmed{st}, nil }, &dohost.Handlers[alarmed]{
		OnAlarm: func(a *alarmed, ctx context.Context, _ dohost.AlarmInfo) error {
			_, err := dohost.Invoke[int](ctx, alarmedObjects.Get(a.st, "counter"), "count", 1, nil)
			return err
		},
	}, dohost.Expose("count", (*alarmed).count))
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := openOn(t, fs, nil, class)
		for _, name := range []string{"a", "b", "c"} {
			if err := dohost.CallNoResult(t.Context(), alarmedObjects.Get(h, name), (*alarmed).setAlarm, time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		h = openOn(t, fs, nil, class)
		time.Sleep(time.Minute)
		if n, err := dohost.Invoke[int](t.Context(), alarmedObjects.Get(h, "counter"), "count", 0, nil); err != nil || n != 3 {
			t.Errorf("%d alarms have called the object, %v", n, err)
		}
	})
}

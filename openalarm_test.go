package dohost_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/objectstore"
)

type ringing struct{ st *dohost.State }

const ringings dohost.Namespace[ringing] = "ringing"

func (r *ringing) ring(ctx context.Context, at time.Time) error { return r.st.SetAlarm(ctx, at) }

func (r *ringing) heard(ctx context.Context, n int) (int, error) {
	if err := dohost.Add(ctx, r.st.Storage(), "n", n); err != nil {
		return 0, err
	}
	n, _, err := dohost.Get[int](ctx, r.st.Storage(), "n")
	return n, err
}

// TestAlarmThatIsDueAtOpenCallsObjects opens a host on objects with due alarms. Their handlers call another object, which may be before Open
// returns. The race detector finds a host that is not complete then.
func TestAlarmThatIsDueAtOpenCallsObjects(t *testing.T) {
	class := dohost.Bind(ringings, func(_ context.Context, st *dohost.State) (*ringing, error) { return &ringing{st}, nil }, &dohost.Handlers[ringing]{
		OnAlarm: func(r *ringing, ctx context.Context, _ dohost.AlarmInfo) error {
			_, err := dohost.Invoke[int](ctx, ringings.Get(r.st, "ear"), "heard", 1, nil)
			return err
		},
	}, dohost.Expose("heard", (*ringing).heard))
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := openOn(t, fs, nil, class)
		for _, name := range []string{"a", "b", "c"} {
			if err := dohost.CallNoResult(t.Context(), ringings.Get(h, name), (*ringing).ring, time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		h = openOn(t, fs, nil, class)
		time.Sleep(time.Minute)
		if n, err := dohost.Invoke[int](t.Context(), ringings.Get(h, "ear"), "heard", 0, nil); err != nil || n != 3 {
			t.Errorf("%d alarms have called the object, %v", n, err)
		}
	})
}

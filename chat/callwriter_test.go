package chat

import (
	"context"
	"fmt"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// storageOwner is an object that only has a storage.
type storageOwner struct{ st *dohost.State }

// TestDeleteOfCallsStopsAtItsBudget deletes a message with three calls, with a budget for two of them.
func TestDeleteOfCallsStopsAtItsBudget(t *testing.T) {
	const owners dohost.Namespace[storageOwner] = "owner"
	class := dohost.Bind(owners, func(_ context.Context, st *dohost.State) (*storageOwner, error) { return &storageOwner{st}, nil }, nil)
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		err := owners.Get(h, "o").Do(t.Context(), func(ctx context.Context, o *storageOwner) error {
			s := o.st.Storage()
			for i := range 3 {
				if err := callRows.Put(ctx, s, callRow{Message: "m", ID: fmt.Sprint(i)}); err != nil {
					return err
				}
			}
			d := deletedCalls{budget: 2}
			if err := d.delete(ctx, s, &messageRow{ID: "m", JSON: []byte(`{"toolCallId":"0"}`)}); err != nil {
				return err
			}
			n, err := callRows.Count(ctx, s, nil)
			if n != 1 || d.budget != 0 {
				t.Errorf("%d calls are left, with a budget of %d", n, d.budget)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

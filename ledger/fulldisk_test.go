package ledger_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/ledger"
	"github.com/dohost/dohost/objectstore"
)

// payBriefly pays, and gives up after a minute.
func (o *order) payBriefly(ctx context.Context) (string, error) { return o.payWithin(ctx, time.Minute) }

// TestFullDiskAfterTheEffect fills the disk during a call. Do waits for space, so the result is not lost.
func TestFullDiskAfterTheEffect(t *testing.T) {
	t.Run("small", func(t *testing.T) { testFullDisk(t, "", 0) })
	t.Run("large", func(t *testing.T) { testFullDisk(t, strings.Repeat("x", 3*mebibyte), 4) })
}

// testFullDisk has receipts with more bytes, which are stored in parts.
func testFullDisk(t *testing.T, more string, parts int) {
	synctest.Test(t, func(t *testing.T) {
		disk := objectstore.NewMemFS()
		disk.SetFree(1 << 40)
		s := newShop(ledger.AtMostOnce)
		s.more = more
		h, err := dohost.Open("data", kernel.OnFS(&dohost.Options{}, disk), s.class())
		if err != nil {
			t.Fatal(err)
		}
		s.after = func(context.Context, ledger.ID) error {
			disk.SetFree(0)
			time.Sleep(10 * time.Second) // the host measures the space
			return nil
		}
		free := func() { disk.SetFree(1 << 40) }
		o := orders.Get(h, "7")

		time.AfterFunc(30*time.Second, free)
		if got, err := pay(t.Context(), o); err != nil || got != receipt(s.calls()[0])+more {
			t.Errorf("space after 20 s: %.200q, %v", got, err)
		}
		wantParts := func(when string, want int) {
			t.Helper()
			if n, err := dohost.CallNoArg(t.Context(), o, (*order).parts); err != nil || n != want {
				t.Errorf("%s there are %d parts, %v; want %d", when, n, err, want)
			}
		}
		wantParts("with a result", parts)
		if r := onlyOperation(t, o); r.Status != ledger.StatusCompleted {
			t.Errorf("the operation is %s", r.Status)
		}

		o = orders.Get(h, "8")
		_, err = dohost.CallNoArg(t.Context(), o, (*order).payBriefly)
		if unknownID(t, err); !errors.Is(err, dohost.ErrNoSpace) {
			t.Errorf("no space for a minute: %v", err)
		}
		free()
		time.Sleep(10 * time.Second)
		wantParts("without a result", 0)
		s.after = nil
		if _, err := pay(t.Context(), o); !errors.Is(err, ledger.ErrUnknown) || s.bank.Total() != 2 {
			t.Errorf("the next Do: %v, %d charges", err, s.bank.Total())
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}

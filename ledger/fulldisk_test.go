package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
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

// TestDiskFullAfterTheEffect fills the disk during a call. Do waits for space, so the result is not lost.
func TestDiskFullAfterTheEffect(t *testing.T) {
	t.Run("small", func(t *testing.T) { testFullDisk(t, "", 0) })
	t.Run("large", func(t *testing.T) { testFullDisk(t, strings.Repeat("x", 3*mebibyte), 4) })
}

// testFullDisk has receipts with more bytes, which are stored in parts.
func testFullDisk(t *testing.T, more string, parts int) {
	synctest.Test(t, func(t *testing.T) {
		disk := objectstore.NewMemFS()
		disk.SetFree(1 << 40)
		s := newShop(ledger.PolicyAtMostOnce)
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

// fullDisk has a host whose disk the test fills, and the reports of its ledger.
type fullDisk struct {
	*shop
	t    *testing.T
	disk *objectstore.FS
	h    *dohost.Host
	o    dohost.Stub[order]

	mu      sync.Mutex
	reports []string
}

func onDisk(t *testing.T, test func(*fullDisk)) {
	synctest.Test(t, func(t *testing.T) {
		d := &fullDisk{shop: newShop(ledger.PolicyAtMostOnce), t: t, disk: objectstore.NewMemFS()}
		d.setFree(1 << 40)
		options := &dohost.Options{Listener: dohost.Listener{Service: func(_ dohost.ID, event string, _ ...slog.Attr) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.reports = append(d.reports, event)
		}}}
		h, err := dohost.Open("data", kernel.OnFS(options, d.disk), d.class())
		if err != nil {
			t.Fatal(err)
		}
		d.h, d.o = h, orders.Get(h, "7")
		test(d)
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}

// setFree sets the free space, and waits until the host has measured it and has sent its reports.
func (d *fullDisk) setFree(free uint64) {
	d.disk.SetFree(free)
	time.Sleep(10 * time.Second)
}

// want compares the states of the operations, the number of calls, and the reports.
func (d *fullDisk) want(when string, states ledger.Status, calls int, reports string) {
	d.t.Helper()
	time.Sleep(time.Second)
	var got []string
	for r, err := range d.h.Details(d.t.Context(), d.o.ID()) {
		if err != nil {
			d.t.Fatal(err)
		}
		if r.Kind == ledger.ResourceKind {
			got = append(got, r.State)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if strings.Join(got, " ") != string(states) || len(d.calls()) != calls || fmt.Sprint(d.reports) != reports {
		d.t.Errorf("%s the operations are %q after %d calls, and the reports are %v; want %q, %d and %s", when, got, len(d.calls()), d.reports, states, calls, reports)
	}
}

// TestDiskFullBeforeTheCall fills the disk before a second operation: it makes no call. The first one returns its stored result.
func TestDiskFullBeforeTheCall(t *testing.T) {
	onDisk(t, func(d *fullDisk) {
		t := d.t
		if _, err := pay(t.Context(), d.o); err != nil {
			t.Fatal(err)
		}
		d.setFree(0)
		if _, err := dohost.Call(t.Context(), d.o, (*order).payIn, "second"); !errors.Is(err, dohost.ErrNoSpace) || errors.Is(err, ledger.ErrUnknown) {
			t.Errorf("without space: %v", err)
		}
		if got, err := pay(t.Context(), d.o); err != nil || got != receipt(d.calls()[0]) {
			t.Errorf("the stored result: %q, %v", got, err)
		}
		d.want("without space", "completed", 1, "[]")
		d.setFree(1 << 40)
		if _, err := dohost.Call(t.Context(), d.o, (*order).payIn, "second"); err != nil {
			t.Error(err)
		}
		d.want("with space", "completed completed", 2, "[]")
	})
}

// TestResolveOnAFullDisk resolves an unknown operation while the disk is full, in each of the four ways. The caller gets an error, the
// operation stays unknown, nothing is reported, and the same decision succeeds when there is space.
func TestResolveOnAFullDisk(t *testing.T) {
	const large = 2 * mebibyte
	result := `"` + strings.Repeat("r", large) + `"`
	operate := func(d *fullDisk, id ledger.ID, r *dohost.AdminRequest) error {
		r.Kind, r.ID = ledger.ResourceKind, string(id)
		done, err := d.h.Operate(d.t.Context(), d.o.ID(), r)
		if err == nil && !done {
			d.t.Error("no operation was resolved")
		}
		return err
	}
	for name, test := range map[string]struct {
		decide func(d *fullDisk, id ledger.ID) error
		status ledger.Status
	}{
		"ResolveDone": {func(d *fullDisk, id ledger.ID) error {
			return dohost.CallNoResult(d.t.Context(), d.o, (*order).done, id)
		}, ledger.StatusCompleted},
		"ResolveNotDone": {func(d *fullDisk, id ledger.ID) error {
			return dohost.CallNoResult(d.t.Context(), d.o, (*order).notDone, id)
		}, ledger.StatusFailed},
		"done": {func(d *fullDisk, id ledger.ID) error {
			return operate(d, id, &dohost.AdminRequest{Action: dohost.ActionDone, Result: json.RawMessage(result)})
		}, ledger.StatusCompleted},
		"not done": {func(d *fullDisk, id ledger.ID) error {
			return operate(d, id, &dohost.AdminRequest{Action: dohost.ActionNotDone})
		}, ledger.StatusFailed},
	} {
		t.Run(name, func(t *testing.T) {
			onDisk(t, func(d *fullDisk) {
				t := d.t
				d.after = failures(1, errTimeout)
				_, err := pay(t.Context(), d.o)
				id := unknownID(t, err)
				d.setFree(0)
				for range 2 {
					if err := test.decide(d, id); !errors.Is(err, dohost.ErrNoSpace) {
						t.Errorf("without space: %v", err)
					}
					d.want("without space", ledger.StatusUnknown, 1, "[ledger:unknown]")
				}
				if n, err := dohost.CallNoArg(t.Context(), d.o, (*order).parts); err != nil || n != 0 {
					t.Errorf("%d parts of a result, %v", n, err)
				}
				d.setFree(1 << 40)
				if err := test.decide(d, id); err != nil {
					t.Errorf("with space: %v", err)
				}
				d.want("with space", test.status, 1, "[ledger:unknown ledger:resolved]")
				if got, err := pay(t.Context(), d.o); err != nil || name == "done" && len(got) != large {
					t.Errorf("the next Do: %.100q, %v", got, err)
				}
			})
		})
	}
}

// TestStartOnAFullDisk wakes an object with an interrupted operation while the disk is full: its events run, and the operation is
// reported again when there is space, and not a third time.
func TestStartOnAFullDisk(t *testing.T) {
	onDisk(t, func(d *fullDisk) {
		t := d.t
		d.after = func(context.Context, ledger.ID) error { panic("the call ends its incarnation") }
		if _, err := pay(t.Context(), d.o); err == nil {
			t.Fatal("the call did not end its incarnation")
		}
		d.setFree(0)
		want := "[ledger:interrupted]"
		for _, free := range []uint64{0, 1 << 40, 1 << 40} {
			d.setFree(free)
			if all := operationsOf(t, d.o); len(all) != 1 || all[0].Status != ledger.StatusUnknown {
				t.Errorf("the operations are %+v", all)
			}
			d.want(fmt.Sprintf("with %d bytes of space", free), ledger.StatusUnknown, 1, want)
			want = "[ledger:interrupted ledger:interrupted]"
			if !d.h.Evict(d.o.ID(), dohost.EndFence) {
				t.Error("the object was not in memory")
			}
		}
	})
}

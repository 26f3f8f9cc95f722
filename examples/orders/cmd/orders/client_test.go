//go:build unix

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"example.com/orders/bank"
)

const cents = 4200

// buy places an order until its client has a receipt, or an answer that the outcome is unknown. A client with a bad card
// is declined first.
func (w *sigkillRun) buy(ctx context.Context, order string, badCard bool) {
	if badCard && !w.try(ctx, order, bank.Limit+1, func(r response) bool { return strings.HasSuffix(r.message, "declined") }) {
		return
	}
	w.try(ctx, order, cents, func(r response) bool {
		if r.receipt == "" {
			return false
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.receipts[order] = r.receipt
		return true
	})
}

// try places an order until the answer is one that its client expects. It returns false if the outcome is unknown, and
// the bank cannot be asked. Without a kill there is no other answer.
func (w *sigkillRun) try(ctx context.Context, order string, cents int, want func(response) bool) bool {
	for ctx.Err() == nil {
		before := w.await(ctx)
		r, err := w.place(ctx, order, cents)
		if err == nil && want(r) {
			return true
		}
		w.mu.Lock()
		killed := w.generation != before
		switch {
		case err != nil:
			w.count.cut++
		case r.code == "unknown_outcome":
			w.count.unknown++
			if !w.lookup {
				w.unknown[order] = true
				w.mu.Unlock()
				return false
			}
		}
		w.mu.Unlock()
		if !killed {
			w.t.Errorf("order %s, without a kill: %+v, %v", order, r, err)
			return false
		}
	}
	w.t.Errorf("order %s: %v", order, ctx.Err())
	return false
}

// details returns the states of the charges of an order, by their IDs, without waking the order.
func (w *sigkillRun) details(ctx context.Context, order string) map[string]detail {
	var list struct{ Details []detail }
	req, err := http.NewRequestWithContext(ctx, "GET", w.admin+"/v1/objects/order/"+order+"/details?kind=operation", nil)
	if err == nil {
		var res *http.Response
		if res, err = w.client.Do(req); err == nil {
			defer res.Body.Close()
			err = json.NewDecoder(res.Body).Decode(&list)
		}
	}
	if err != nil {
		w.t.Errorf("details of order %s: %v", order, err)
	}
	found := map[string]detail{}
	for _, d := range list.Details {
		found[d.ID] = d
	}
	return found
}

type detail struct{ ID, State, Text string }

// waitForBank returns when the bank has served all requests that were sent until now.
func (w *sigkillRun) waitForBank(ctx context.Context) {
	shop := &httpShop{bank: w.bankURL}
	_, _, err := shop.Find(ctx, "none")
	if err == nil {
		err = w.book.update()
	}
	if err != nil {
		w.t.Error(err)
	}
}

// countInterrupted counts the operations that a killed server has left.
func (w *sigkillRun) countInterrupted(ctx context.Context, names []string) {
	w.waitForBank(ctx)
	before := w.count.interrupted
	for _, order := range names {
		for _, d := range w.details(ctx, order) {
			if d.State != "unknown" {
				continue
			}
			w.count.interrupted++
			w.count.charged += len(w.book.entries[order])
		}
	}
	if w.count.interrupted > before {
		w.count.serverHits++
	}
}

// resolveAll resolves the unknown charges like an operator, and lets the clients place their orders again.
func (w *sigkillRun) resolveAll(ctx context.Context) {
	w.waitForBank(ctx)
	var operators sync.WaitGroup
	for order := range w.unknown {
		operators.Go(func() { w.resolve(ctx, order) })
	}
	operators.Wait()
	clear(w.unknown)
}

var unknownCharge = regexp.MustCompile(`(?m)^operation +(op_\w+), unknown, "charge" `)

func (w *sigkillRun) resolve(ctx context.Context, order string) {
	if r, err := w.place(ctx, order, cents); err != nil || r.code != "unknown_outcome" {
		w.t.Errorf("order %s, before it is resolved: %+v, %v", order, r, err)
	}
	m := unknownCharge.FindStringSubmatch(w.command("show", "order/"+order))
	if m == nil {
		w.t.Errorf("show does not have the unknown charge of order %s", order)
		return
	}
	charges := w.book.entries[order]
	outcome := []string{"--not-done"}
	if len(charges) > 0 {
		outcome = []string{"--done", `"` + charges[0].receipt + `"`}
	}
	w.command(append([]string{"resolve", "order/" + order, m[1]}, outcome...)...)
	r, err := w.place(ctx, order, cents)
	if err != nil || r.receipt == "" || len(charges) > 0 && r.receipt != charges[0].receipt {
		w.t.Errorf("order %s, after %q: %+v, %v", order, outcome, r, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.receipts[order] = r.receipt
	if len(charges) > 0 {
		w.count.done++
	} else {
		w.count.notDone++
	}
}

// command runs a command of the operator.
func (w *sigkillRun) command(args ...string) string {
	cmd := exec.Command(filepath.Join(w.bin, "orders"), args...)
	cmd.Env = append(cmd.Environ(), "DOHOST_ADMIN="+w.admin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Errorf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

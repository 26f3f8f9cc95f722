//go:build unix

package main

import "strings"

// checkBook compares the orders of a round with the bank's book: each was charged once, and its client has the receipt.
func (w *sigkillRun) checkBook(names []string) {
	if err := w.book.update(); err != nil {
		w.t.Error(err)
	}
	for _, order := range names {
		charges := w.book.entries[order]
		if len(charges) != 1 || charges[0].receipt != w.receipts[order] {
			w.t.Errorf("order %s: the client has the receipt %q, and the book %q", order, w.receipts[order], charges)
		}
	}
}

// checkAll kills the server, and compares the whole book with the next one: each order has the stored receipt, and another
// call makes no charge. Each key in the book has the ID of the operation.
func (w *sigkillRun) checkAll() {
	ctx := w.t.Context()
	w.server.kill()
	w.startServer()
	for order, receipt := range w.receipts {
		operations := w.details(ctx, order)
		if len(operations) != 1 {
			w.t.Errorf("order %s has the operations %v", order, operations)
		}
		for id, d := range operations {
			if d.State != "completed" || !strings.HasSuffix(d.Text, `, result "`+receipt+`"`) || !w.hasKeyOf(order, id) {
				w.t.Errorf("order %s has the receipt %q, the operation %+v, and in the book %q", order, receipt, d, w.book.entries[order])
			}
		}
		if r, err := w.place(ctx, order, cents); err != nil || r.receipt != receipt {
			w.t.Errorf("order %s has the receipt %q, and the next call: %+v, %v", order, receipt, r, err)
		}
	}
	before := w.book.read
	w.waitForBank(ctx)
	if w.book.read != before || len(w.book.entries) != len(w.receipts) || len(w.receipts) != perRound*(*rounds) {
		w.t.Errorf("%d orders, %d of them in the book, which has %d bytes more", len(w.receipts), len(w.book.entries), w.book.read-before)
	}
	w.server.kill()
	w.command("check", w.data())
}

// hasKeyOf reports whether all charges of an order have keys of an operation.
func (w *sigkillRun) hasKeyOf(order, id string) bool {
	for _, e := range w.book.entries[order] {
		if !strings.HasPrefix(e.key, id+"/") {
			return false
		}
	}
	return true
}

// report logs the numbers of the test. It fails without kills that have hit a call.
func (w *sigkillRun) report() {
	c := w.count
	w.t.Logf("%d rounds, %d orders, %d declines", *rounds, len(w.receipts), w.book.declined)
	w.t.Logf("%d kills of the server, %d of them during a call; %d kills of the bank, %d of them during a call",
		c.serverKills, c.serverHits, c.bankKills, c.bankHits)
	w.t.Logf("%d interrupted operations, %d of them with a charge; %d requests without an answer; %d unknown outcomes; %d resolved as done, %d as not done",
		c.interrupted, c.charged, c.cut, c.unknown, c.done, c.notDone)
	if c.serverHits == 0 || c.bankHits == 0 || c.charged == 0 || !w.lookup && (c.done == 0 || c.notDone == 0) {
		w.t.Error("the kills hit no call of some kind")
	}
}

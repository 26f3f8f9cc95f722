//go:build unix

package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync"
	"testing"
	"time"
)

var (
	rounds = flag.Int("rounds", 10, "rounds of TestOrdersAfterSIGKILL, with each of its banks")
	seed   = flag.Uint64("seed", 0, "seed of its kills; 0 for a random one")
)

const (
	perRound   = 6                    // orders of a round
	bankDelay  = 4 * time.Millisecond // between a charge and its answer
	roundLimit = time.Minute
)

// TestOrdersAfterSIGKILL kills the server of orders and the bank while clients place orders. The bank takes each request as
// a new one, so each repeated request is a second charge in its book. Clients repeat their calls until they have a receipt,
// or until the outcome is unknown; then an operator resolves the charge. In the end each order has one charge, and each
// client has its receipt.
func TestOrdersAfterSIGKILL(t *testing.T) {
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, ".", "../bank").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	first := *seed
	if first == 0 {
		first = rand.Uint64() % 1_000_000
	}
	for name, lookup := range map[string]bool{"the bank can be asked": true, "the bank cannot be asked": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Logf("-seed %d", first)
			w := newSigkillRun(t, bin, lookup, rand.New(rand.NewPCG(first, 0)))
			for n := range *rounds {
				w.round(n)
				if t.Failed() {
					t.Fatalf("round %d of -seed %d", n, first)
				}
			}
			w.checkAll()
			w.report()
		})
	}
}

// round lets clients place orders, kills a process or both, and starts them again.
func (w *sigkillRun) round(n int) {
	ctx, cancel := context.WithTimeout(w.t.Context(), roundLimit)
	names := make([]string, perRound)
	var clients sync.WaitGroup
	base := w.bank.received.Load()
	for i := range names {
		names[i] = fmt.Sprintf("%d-%d", n, i)
		clients.Go(func() { w.buy(ctx, names[i], i == 0) })
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		clients.Wait()
	}()
	defer func() {
		cancel()
		<-done
	}()
	w.waitForKill(ctx, base+1+int64(w.rng.IntN(perRound)), time.Duration(w.rng.IntN(int(bankDelay))), done)
	killsServer, killsBank := w.killAndStart(n % 3)
	if killsServer {
		w.countInterrupted(ctx, names)
	}
	if killsBank {
		w.count.bankKills++
	}
	w.open()
	<-done
	w.resolveAll(ctx)
	w.checkBook(names)
}

// waitForKill waits until the number of requests that the bank has received is at least requests, or the clients are done. Then it waits
// for the time after.
func (w *sigkillRun) waitForKill(ctx context.Context, requests int64, after time.Duration, done <-chan struct{}) {
	for w.bank.received.Load() < requests {
		select {
		case <-w.bank.news:
			continue
		case <-done:
		case <-ctx.Done():
		}
		break
	}
	<-time.After(after)
}

// killAndStart kills the server (0), the bank (1) or both (2), and starts the next processes. The clients wait until open.
func (w *sigkillRun) killAndStart(victims int) (server, bank bool) {
	w.close()
	server, bank = victims != 1, victims != 0
	if server {
		w.count.serverKills++
		w.server.kill()
	}
	if bank {
		w.bank.kill()
		if w.bank.inFlight() > 0 {
			w.count.bankHits++
		}
		w.startBank()
	}
	if server {
		w.startServer()
	}
	return server, bank
}

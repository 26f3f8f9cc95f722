//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost/cluster"
	"github.com/dohost/dohost/cluster/nats/internal/natstest"
)

const (
	cells        = 4
	cellCounters = 12
	clusterTime  = 3 * time.Minute // for each change of the nodes, on a busy machine
)

// status returns the state of the cluster as a node knows it.
func (n *node) status() (s cluster.Status) {
	n.t.Helper()
	res, err := http.Get(n.admin + "/cells")
	if err != nil {
		n.t.Fatalf("%v\n%s", err, &n.errors)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
		n.t.Fatal(err)
	}
	return s
}

// pause waits between two attempts.
func pause(t *testing.T, limit time.Time, name string) {
	t.Helper()
	if time.Now().After(limit) {
		t.Fatalf("%s takes too long", name)
	}
	select {
	case <-time.After(20 * time.Millisecond):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// awaitShare waits until a node serves so many cells, and each cell is served.
func (n *node) awaitShare(share int) {
	n.t.Helper()
	for limit := time.Now().Add(clusterTime); ; pause(n.t, limit, fmt.Sprint("a share of ", share)) {
		here, all := 0, true
		for _, c := range n.status().Cells {
			all = all && c.Holder == c.Owner && c.Holder != ""
			if c.Here {
				here++
			}
		}
		if here == share && all {
			return
		}
	}
}

// insist adds to a counter until a node has answered, and returns the total, and the number of attempts without an outcome.
func insist(t *testing.T, address string, i, delta int) (total, unknown int) {
	t.Helper()
	for limit := time.Now().Add(clusterTime); ; pause(t, limit, fmt.Sprint("an answer of counter ", i)) {
		total, ran, err := add(t, address, fmt.Sprint(i), delta)
		if err == nil {
			return total, unknown
		}
		if ran {
			unknown++
		}
	}
}

// totals are the acknowledged increments of counters, and those without an outcome.
type totals struct{ acknowledged, unknown [cellCounters]int }

// check reads each counter by each node.
func (all *totals) check(t *testing.T, nodes ...string) {
	t.Helper()
	for i := range cellCounters {
		for _, address := range nodes {
			total, _ := insist(t, address, i, 0)
			if total < all.acknowledged[i] || total > all.acknowledged[i]+all.unknown[i] {
				t.Errorf("counter %d is %d at %s, want %d, or up to %d more", i, total, address, all.acknowledged[i], all.unknown[i])
			}
		}
	}
}

// load adds to all counters at a node, each by a client of its own, until stop is closed and each client has another answer.
func (all *totals) load(t *testing.T, address string, stop <-chan struct{}) (longest time.Duration) {
	t.Helper()
	var clients sync.WaitGroup
	gaps := make([]time.Duration, cellCounters)
	for i := range cellCounters {
		clients.Go(func() {
			for last, stopped := time.Now(), false; !stopped; {
				select {
				case <-stop:
					stopped = true
				default:
				}
				_, unknown := insist(t, address, i, 1)
				all.acknowledged[i]++
				all.unknown[i] += unknown
				gaps[i] = max(gaps[i], time.Since(last))
				last = time.Now()
			}
		})
	}
	clients.Wait()
	for _, gap := range gaps {
		longest = max(longest, gap)
	}
	return longest
}

// during runs f while clients add to the counters at a node.
func (all *totals) during(t *testing.T, address string, f func()) (longest time.Duration) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan time.Duration, 1)
	go func() { done <- all.load(t, address, stop) }()
	f()
	close(stop)
	return <-done
}

// TestCellsOfThreeNodes kills a node among its clients, replaces it by another one, and ends the other in good order. Each node answers for
// all objects.
func TestCellsOfThreeNodes(t *testing.T) {
	s := natstest.Start(t, 3, "always")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("a secret of this test"), 0o600); err != nil {
		t.Fatal(err)
	}
	join := func() *node {
		n := start(t, s, "--admin", "127.0.0.1:0", "--cells", fmt.Sprint(cells), "--cluster-secret", secret)
		n.at = n.address()
		n.admin = <-n.admins
		return n
	}
	var all totals
	first := join()
	first.awaitShare(cells)
	second := join()
	gap := all.during(t, first.at, func() { second.awaitShare(cells / 2) })
	t.Logf("the longest gap while cells moved: %v", gap.Round(time.Millisecond))
	all.check(t, first.at, second.at)

	gap = all.during(t, second.at, func() {
		if err := first.cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		second.awaitShare(cells)
	})
	t.Logf("the longest gap after a kill: %v; the lease is 10s", gap.Round(time.Millisecond))
	all.check(t, second.at)

	third := join()
	third.awaitShare(cells / 2)
	all.check(t, second.at, third.at)
	gap = all.during(t, third.at, func() {
		if err := second.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := second.cmd.Wait(); err != nil {
			t.Errorf("the node has ended with %v:\n%s", err, &second.errors)
		}
	})
	t.Logf("the longest gap while a node drained: %v", gap.Round(time.Millisecond))
	third.awaitShare(cells)
	all.check(t, third.at)
	for limit := time.Now().Add(clusterTime); len(third.status().Members) != 1; {
		pause(t, limit, "the end of the other members")
	}
	wrong := start(t, s, "--cells", fmt.Sprint(cells+1), "--cluster-secret", secret)
	if _, started := <-wrong.objects; started {
		t.Error("a node with another number of cells has started")
	}
	if err := wrong.cmd.Wait(); err == nil || !strings.Contains(wrong.errors.String(), "the number cannot be changed") {
		t.Errorf("a node with another number of cells: %v\n%s", err, &wrong.errors)
	}
}

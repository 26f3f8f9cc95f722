//go:build unix

package main

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"
)

const shipRounds = 4

// shippedCounters are those of the clients, and two that one client increments in turn.
var shippedCounters = []string{"0", "1", "2", "left", "right"}

// TestShippingAfterSIGKILL kills a server that ships its records, among its callers, and restores the folder after each kill.
// The restored store is a prefix of the history: of two counters that one client increments in turn, the second is never ahead,
// and no counter has more than the store that the kill has left. After a kill at rest it has everything.
func TestShippingAfterSIGKILL(t *testing.T) {
	t.Parallel()
	k := newKillTest(t)
	bin, data, folder := k.bin, k.dir("data"), k.dir("shipped")
	book := newAckRecord(t)
	lacked := 0
	for round := range shipRounds {
		v := startProcess(t, bin, data, "--ship", folder)
		v.waitShipped() // the folder has a base, and the records of the process before
		done := v.alternate()
		// Some kills come before the first file of this load, some after it.
		v.killUnderLoad(book, alarmName(round), 20+k.rng.IntN(1500))
		<-done
		restored := restoredTotals(t, bin, folder, k.dir(fmt.Sprint("restored", round)))
		live := startProcess(t, bin, data, "--ship", folder) // without it the next host would begin with a base
		totals := live.totals()
		killProcess(t, live)
		lacked += wantPrefix(t, fmt.Sprintf("round %d, restored", round), restored, totals)
	}
	v := startProcess(t, bin, data, "--ship", folder)
	book.reconcile(v)
	v.waitShipped()
	totals := v.totals()
	killProcess(t, v)
	restored := restoredTotals(t, bin, folder, k.dir("last"))
	for name, n := range totals {
		if restored[name] != n || n == 0 {
			t.Errorf("after a kill at rest, restored counter %s is %d, want %d, more than 0", name, restored[name], n)
		}
	}
	if lacked == 0 {
		t.Error("no kill came before the end of shipping")
	}
	t.Logf("%d restored stores lacked %d increments", shipRounds, lacked)
}

// wantPrefix wants counters of one moment that came before the counters of the live store, and returns the number of increments that they lack.
func wantPrefix(t *testing.T, which string, totals, live map[string]int) (lacked int) {
	t.Helper()
	if left, right := totals["left"], totals["right"]; right > left || left > right+1 {
		t.Errorf("%s: the counters left and right are %d and %d: no moment had these", which, left, right)
	}
	for name, n := range live {
		if lacked += n - totals[name]; totals[name] > n {
			t.Errorf("%s: counter %s is %d, and the store has only %d", which, name, totals[name], n)
		}
	}
	return lacked
}

// alternate increments two counters in turn until the server ends. It begins with the one that a kill before has left lower.
func (v *serverProcess) alternate() (done chan struct{}) {
	v.t.Helper()
	ahead := v.total("left") - v.total("right")
	done = make(chan struct{})
	go func() {
		defer close(done)
		for n := ahead; ; n++ {
			name, sum := []string{"left", "right"}[n%2], 0
			if refusal, err := v.do(http.MethodPost, v.add(name), "1", &sum); err != nil || refusal != nil {
				return
			}
		}
	}()
	return done
}

func (v *serverProcess) totals() map[string]int {
	v.t.Helper()
	totals := map[string]int{}
	for _, name := range shippedCounters {
		totals[name] = v.total(name)
	}
	return totals
}

// restoredTotals restores a folder, checks the store, and reads its counters from a server.
func restoredTotals(t *testing.T, bin, folder, dir string) map[string]int {
	t.Helper()
	if out, err := exec.Command(bin, "restore", "--from", folder, "--data", dir).CombinedOutput(); err != nil {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	wantConsistent(t, bin, dir)
	v := startProcess(t, bin, dir)
	defer killProcess(t, v)
	return v.totals()
}

var shipMetric = regexp.MustCompile(`(?m)^dohost_ship_(lag_records|needs_base) (\d+)$`)

// waitShipped waits until the folder has a base and all records.
func (v *serverProcess) waitShipped() {
	v.t.Helper()
	deadline := time.After(scriptTimeout)
	for {
		waiting, metrics := 0, v.metrics()
		found := shipMetric.FindAllStringSubmatch(metrics, -1)
		for _, m := range found {
			n, err := strconv.Atoi(m[2])
			if err != nil {
				v.t.Fatal(err)
			}
			waiting += n
		}
		if len(found) != 2 {
			v.t.Fatalf("the metrics lack those of shipping:\n%s", metrics)
		}
		if waiting == 0 {
			return
		}
		select {
		case <-deadline:
			v.t.Fatalf("the records are not shipped: %v", found)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (v *serverProcess) metrics() string {
	v.t.Helper()
	res, err := v.client.Get(v.admin + "/metrics")
	if err != nil {
		v.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		v.t.Fatalf("metrics: status %d, %v", res.StatusCode, err)
	}
	return string(text)
}

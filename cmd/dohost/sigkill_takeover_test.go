//go:build unix

package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const takeOverRounds = 4

// TestTakeOverOfASharedLog takes a shared log over from servers that were killed, or stopped, among their callers. Each next server has
// every acknowledged increment. A stopped server that continues acknowledges nothing and returns no value, and ends by itself.
func TestTakeOverOfASharedLog(t *testing.T) {
	t.Parallel()
	k := newKillTest(t)
	rng, bin, log := k.rng, k.bin, k.dir("log")
	book := newAckRecord(t)
	var gaps []time.Duration
	for round := range takeOverRounds {
		// Two directories in turn, each with the records up to the last round but one, and an empty one.
		data := k.dir(fmt.Sprint("data", round%3))
		v := startProcess(t, bin, data, "--shared-log", log)
		book.reconcile(v)
		if round%2 == 0 {
			v.killUnderLoad(book, alarmName(round), 20+rng.IntN(100))
			begun := time.Now()
			next := startProcess(t, bin, k.dir("next"), "--shared-log", log)
			book.reconcile(next)
			gaps = append(gaps, time.Since(begun).Round(time.Millisecond))
			terminate(t, next)
			continue
		}
		load := v.addUntilRefused(book)
		<-book.enough(20 + rng.IntN(100))
		if err := v.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		next := startProcess(t, bin, k.dir("next"), "--shared-log", log)
		for range 20 {
			book.add(next, "0")
		}
		gaps = append(gaps, time.Since(begun).Round(time.Millisecond))
		before := v.sendWhileStopped()
		if err := v.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		load.Wait()
		for answer := range before {
			if answer != "" {
				t.Errorf("a former owner has answered: %s", answer)
			}
		}
		text := v.logged()
		if err := v.cmd.Wait(); err == nil || !strings.Contains(text, "fenced") {
			t.Errorf("the former owner has ended with %v:\n%s", err, text)
		}
		book.reconcile(next)
		terminate(t, next)
	}
	t.Logf("the next server had answered after %v", gaps)
}

// terminate ends a server in good order.
func terminate(t *testing.T, v *serverProcess) {
	t.Helper()
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	text := v.logged()
	if err := v.cmd.Wait(); err != nil {
		t.Fatalf("ended with %v:\n%s", err, text)
	}
}

// addUntilRefused lets clients add until the server ends or refuses.
func (v *serverProcess) addUntilRefused(book *ackRecord) *sync.WaitGroup {
	var clients sync.WaitGroup
	for i := range killClients {
		clients.Go(func() {
			for n := i; book.add(v, fmt.Sprint(n%killObjects)); n++ {
			}
		})
	}
	return &clients
}

// sendWhileStopped sends reads to a stopped server, and returns a channel that gets their values, or "" for each refusal.
func (v *serverProcess) sendWhileStopped() <-chan string {
	answers := make(chan string, killObjects)
	var clients sync.WaitGroup
	for i := range killObjects {
		clients.Go(func() {
			n, text := 0, ""
			if refusal, err := v.do(http.MethodPost, v.add(fmt.Sprint(i)), "0", &n); err == nil && refusal == nil {
				text = fmt.Sprintf("counter %d is %d", i, n)
			}
			answers <- text
		})
	}
	go func() {
		clients.Wait()
		close(answers)
	}()
	return answers
}

package dohost_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
)

// repeatDuring repeats a call of a slow method, after a while, when another call has returned.
func repeatDuring(t *testing.T, slow, keep, after time.Duration, other string, arg any) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := openPair(t)
		defer p.close(t)
		a := accounts.Get(p, "a")
		results := make(chan int, 2)
		call := func() {
			n, err := dohost.Invoke[int](t.Context(), a, "long", slow, &dohost.InvokeOptions{CallID: "x", Keep: keep})
			if err != nil {
				t.Error(err)
			}
			results <- n
		}
		go call()
		time.Sleep(after)
		if _, err := dohost.Invoke[any](t.Context(), a, other, arg, &dohost.InvokeOptions{CallID: "other"}); err != nil {
			t.Fatal(err)
		}
		go call()
		for range 2 {
			if n := <-results; n != 1 {
				t.Errorf("the result is %d", n)
			}
		}
		if n, err := dohost.Invoke[int](t.Context(), a, "balance", 0, nil); err != nil || n != 1 {
			t.Errorf("the balance is %d, %v: the method has run twice", n, err)
		}
	})
}

// TestRepetitionAfterDeleteAllWaitsForTheRun deletes the row of a call while its method awaits.
func TestRepetitionAfterDeleteAllWaitsForTheRun(t *testing.T) {
	repeatDuring(t, 10*time.Second, time.Hour, time.Second, "close", struct{}{})
}

// TestRepetitionAfterTheRetentionPeriodWaitsForTheRun lets the row of a call expire while its method awaits. Another call deletes expired rows.
func TestRepetitionAfterTheRetentionPeriodWaitsForTheRun(t *testing.T) {
	repeatDuring(t, 10*time.Minute, time.Minute, 5*time.Minute, "deposit", 0)
}

// TestRunAfterTheRetentionPeriodIsInterrupted ends the incarnation of a run whose row has expired.
func TestRunAfterTheRetentionPeriodIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := openPair(t)
		defer p.close(t)
		a := accounts.Get(p, "a")
		call := func() error {
			_, err := dohost.Invoke[int](t.Context(), a, "long", time.Hour, &dohost.InvokeOptions{CallID: "x", Keep: time.Minute})
			return err
		}
		ended := make(chan error)
		go func() { ended <- call() }()
		time.Sleep(5 * time.Minute)
		if _, err := dohost.Invoke[int](t.Context(), a, "deposit", 0, &dohost.InvokeOptions{CallID: "other"}); err != nil {
			t.Fatal(err)
		}
		p.LocateHost().Evict(a.ID(), dohost.EndFence)
		if err := <-ended; !errors.Is(err, dohost.ErrFenced) {
			t.Error(err)
		}
		if err := call(); codeOf(err) != "call_interrupted" {
			t.Error(err)
		}
	})
}

package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/objectstore"
)

// repeatDuring repeats a call of a slow method, after a while, when another call has returned.
func repeatDuring(t *testing.T, slow, keep, after time.Duration, other string, arg any) {
	t.Helper()
	withPair(t, func(t *testing.T, p *pair) {
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
	withPair(t, func(t *testing.T, p *pair) {
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
		p.hosts[0].Load().Evict(a.ID(), dohost.EndFence)
		if err := <-ended; !errors.Is(err, dohost.ErrFenced) {
			t.Error(err)
		}
		if err := call(); codeOf(err) != "call_interrupted" {
			t.Error(err)
		}
	})
}

// TestRepetitionThatWaitsReleasesItsArgument lets repetitions with a large argument wait, and their callers disconnect.
func TestRepetitionThatWaitsReleasesItsArgument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openOn(t, objectstore.NewMemFS(), &dohost.Options{MaxEvents: 3, Grace: -1}, accountClass())
		id := accounts.Get(h, "b").ID()
		text := fmt.Sprint(int(time.Hour), strings.Repeat(" ", 2<<20))
		call := func(repetition bool) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(text))
			ctx, argument, release, err := h.ReadCall(r, id)
			defer release()
			if err != nil {
				t.Fatal(err)
			}
			if repetition {
				go func() {
					time.Sleep(10 * time.Second)
					if used := h.ReadBudget().Used; used > 3<<20 {
						t.Errorf("%d bytes are in use while a repetition waits", used)
					}
				}()
			}
			h.AnswerCall(ctx, &dohost.RemoteCall{ID: id, Method: "long", CallID: "x", Keep: time.Minute, Argument: argument})
		}
		for i := range 4 {
			call(i > 0)
		}
		if n, err := dohost.Invoke[int](t.Context(), accounts.Get(h, "b"), "balance", 0, nil); err != nil || n != 0 {
			t.Errorf("%d, %v: the repetitions have not ended", n, err)
		}
	})
}

package dohost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost"
)

// outcomeObject has a handler that the test sets.
type outcomeObject struct{ st *dohost.State }

const (
	outcomeObjects dohost.Namespace[outcomeObject] = "outcome"
	brokenObjects  dohost.Namespace[outcomeObject] = "broken"
)

const secret = "postgres://svc:hunter2@db"

func newOutcomeObject(_ context.Context, st *dohost.State) (*outcomeObject, error) {
	return &outcomeObject{st}, nil
}

// brokenClass is a class with a constructor that fails with an error that wraps one about a name.
func brokenClass() dohost.Class {
	_, nameErr := dohost.ParseID("nonsense")
	return dohost.Bind(brokenObjects, func(context.Context, *dohost.State) (*outcomeObject, error) {
		return nil, fmt.Errorf("%s: %w", secret, nameErr)
	}, &dohost.Handlers[outcomeObject]{OnHTTP: func(*outcomeObject, http.ResponseWriter, *http.Request) {}})
}

// serveOutcome answers a request with a handler, and returns the status and the error.
func serveOutcome(t *testing.T, path string, handler func(*outcomeObject, http.ResponseWriter, *http.Request)) (*dohost.Host, int, dohost.ErrorBody) {
	t.Helper()
	h := open(t, nil, brokenClass(), dohost.Bind(outcomeObjects, newOutcomeObject, &dohost.Handlers[outcomeObject]{OnHTTP: handler}))
	w := httptest.NewRecorder()
	h.ServeObject(w, httptest.NewRequest("POST", path, nil), outcomeObjects.Get(h, "a").ID())
	var b dohost.ErrorBody
	if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil {
		t.Fatal(err, w.Body)
	}
	if strings.Contains(w.Body.String(), "hunter2") {
		t.Errorf("the client gets the text of the object's error: %s", w.Body)
	}
	return h, w.Code, b
}

func TestHTTPErrorOfAbortHidesItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nameErr := dohost.ParseID("nonsense")
		_, status, b := serveOutcome(t, "/", func(o *outcomeObject, _ http.ResponseWriter, r *http.Request) {
			_ = o.st.Abort(r.Context(), fmt.Errorf("%s: %w", secret, nameErr), nil)
		})
		if status != http.StatusInternalServerError || b.Code != "fenced" {
			t.Errorf("%d %+v", status, b)
		}
	})
}

// TestHTTPErrorAfterDelegateIsNotNotRun delegates a request, after a write, to an object that cannot start, and to the
// object itself. A client that repeats the request repeats the write, so the outcome must not be that nothing ran.
func TestHTTPErrorAfterDelegateIsNotNotRun(t *testing.T) {
	for path, code := range map[string]string{"/broken": "constructor", "/loop": "too_many_delegations"} {
		synctest.Test(t, func(t *testing.T) {
			h, _, b := serveOutcome(t, path, func(o *outcomeObject, w http.ResponseWriter, r *http.Request) {
				to := o.st.ID()
				if r.URL.Path == "/broken" {
					to = brokenObjects.Get(o.st, "x").ID()
				}
				err := errors.Join(dohost.Add(r.Context(), o.st.Storage(), "seen", 1), o.st.Delegate(w, r, to))
				if err != nil {
					t.Error(err)
				}
			})
			if b.Code != code || b.Ran != dohost.OutcomeUnknown.String() || b.Retryable || b.Object != "outcome/a" {
				t.Errorf("%s: %+v", path, b)
			}
			err := outcomeObjects.Get(h, "a").Do(t.Context(), func(ctx context.Context, o *outcomeObject) error {
				n, _, err := dohost.Get[int](ctx, o.st.Storage(), "seen")
				if n == 0 {
					t.Error("the handler did not run")
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWriteErrorHidesArgumentErrorOfAnotherCall(t *testing.T) {
	type card struct{ Number int }
	var h *dohost.Host
	h = open(t, nil, dohost.Bind(outcomeObjects, newOutcomeObject, nil,
		dohost.Expose("outer", func(o *outcomeObject, ctx context.Context, _ int) (int, error) {
			_, err := h.Invoke(ctx, outcomeObjects.Get(o.st, "inner").ID(), "inner", []byte(`{"Number":"`+secret+`"}`))
			return 0, err
		}),
		dohost.Expose("inner", func(*outcomeObject, context.Context, card) (int, error) { return 0, nil })))
	_, err := h.Invoke(t.Context(), outcomeObjects.Get(h, "a").ID(), "outer", []byte("1"))
	w := httptest.NewRecorder()
	h.WriteError(w, err)
	if _, ok := errors.AsType[*dohost.ArgumentError](err); !ok || strings.Contains(w.Body.String(), "inner") {
		t.Errorf("%v: %s", err, w.Body)
	}
}

func TestErrorOfTypePublicErrorMayBeNil(t *testing.T) {
	var none *dohost.PublicError
	h := open(t, nil)
	w := httptest.NewRecorder()
	h.WriteError(w, &dohost.Error{Op: "x", Err: none, Outcome: dohost.OutcomeRan})
	if w.Code != http.StatusInternalServerError || none.Error() == "" || none.Unwrap() != nil {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestFlushErrorStaysUntilTheEnd lets a Flush fail in the middle of a response. The pieces of that Flush are lost, so
// later Writes must fail, too: the client would receive a response with a hole.
func TestFlushErrorStaysUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h *dohost.Host
		h = open(t, nil, dohost.Bind(outcomeObjects, newOutcomeObject, &dohost.Handlers[outcomeObject]{
			OnHTTP: func(o *outcomeObject, w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write([]byte("one "))
				w.(http.Flusher).Flush()
				_, _ = w.Write([]byte("two "))
				h.Evict(o.st.ID(), dohost.EndFence)
				w.(http.Flusher).Flush()
				if _, err := w.Write([]byte("three")); !errors.Is(err, dohost.ErrFenced) {
					t.Errorf("a Write after a Flush that failed: %v", err)
				}
			},
		}))
		w := httptest.NewRecorder()
		defer func() {
			if p := recover(); p != http.ErrAbortHandler {
				t.Errorf("the response ends with %v: %s", p, w.Body)
			}
		}()
		h.ServeObject(w, httptest.NewRequest("GET", "/", nil), outcomeObjects.Get(h, "a").ID())
	})
}

func TestRetryCountsOtherErrorsAsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notRun := &dohost.Error{Op: "a", Err: errors.New("x"), Outcome: dohost.OutcomeNotRun, Retryable: true}
		results := []error{errors.New("the answer could not be parsed"), notRun}
		attempt := 0
		err := dohost.Retry(t.Context(), &dohost.RetryPolicy{ShouldRetry: dohost.RetryAnyError, MaxAttempts: 2}, func(context.Context) error {
			attempt++
			return results[attempt-1]
		})
		if e, ok := errors.AsType[*dohost.Error](err); !ok || e.Outcome != dohost.OutcomeUnknown || e.Retryable {
			t.Errorf("after an error of the program: %+v", e)
		}
		calls := 0
		err = dohost.Retry(t.Context(), nil, func(context.Context) error {
			calls++
			return errors.Join(notRun, &dohost.Error{Op: "b", Err: errors.New("y")})
		})
		if e, ok := errors.AsType[*dohost.Error](err); calls != 1 || !ok || e.Outcome != dohost.OutcomeUnknown {
			t.Errorf("two calls, one of them with an unknown outcome: %d attempts, %+v", calls, e)
		}
	})
}

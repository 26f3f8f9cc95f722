package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost"
)

// Code that declares a pointer to an error, and returns it as an error, returns an error that is a nil pointer.
func TestErrorsThatAreNilPointersAreErrors(t *testing.T) {
	for _, nilErr := range []error{
		(*dohost.Error)(nil), (*dohost.PublicError)(nil), (*dohost.Fenced)(nil), (*dohost.PanicError)(nil), (*dohost.ArgumentError)(nil),
		(*dohost.LimitError)(nil), (*dohost.NameError)(nil), (*dohost.RowError)(nil), (*dohost.FeedError)(nil), (*dohost.DamageError)(nil),
		(*dohost.CloseError)(nil), (*dohost.ErrorBody)(nil),
	} {
		name := strings.TrimPrefix(fmt.Sprintf("%T", nilErr), "*dohost.")
		name = name[strings.LastIndexByte(name, '.')+1:]
		for _, err := range []error{nilErr, fmt.Errorf("wrapped: %w", nilErr)} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { returnNilError(t, err, "dohost: nil *"+name) })
			})
		}
	}
}

// returnNilError returns err from each function of the program whose error the host reads.
func returnNilError(t *testing.T, err error, text string) {
	if !strings.HasSuffix(err.Error(), text) {
		t.Errorf("the text is %q, want %q", err, text)
	}
	atOpen := false // the constructor of the object "b" fails
	h := open(t, &dohost.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}, dohost.Bind(nilObjects,
		func(_ context.Context, st *dohost.State) (*nilObject, error) {
			if st.ID().Name == "b" {
				atOpen = true
				return nil, err
			}
			return &nilObject{st}, nil
		},
		&dohost.Handlers[nilObject]{
			OnSocket: &dohost.SocketHandlers[nilObject]{
				Message: func(*nilObject, context.Context, *dohost.Socket, dohost.Frame) error { return nil },
			},
			OnHTTP: func(o *nilObject, w http.ResponseWriter, r *http.Request) { o.st.WriteError(w, err) },
			Authorize: func(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
				if r.ID.Name == "c" {
					return dohost.Access{}, err
				}
				return dohost.Access{Rights: dohost.RightsReadWrite}, nil
			},
		},
		dohost.Expose("fail", func(o *nilObject, ctx context.Context, abort bool) (int, error) {
			if abort {
				return 0, o.st.Abort(ctx, err, nil)
			}
			if text := o.st.ErrorText("fail", err); text == "" {
				t.Error("ErrorText is empty")
			}
			return 0, err
		})))
	ctx := dohost.GrantAccess(t.Context(), dohost.Access{Rights: dohost.RightsReadWrite})
	serve := func(name string, ctx context.Context) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeObject(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil), nilObjects.Get(h, name).ID())
		return w
	}
	describe := func(what string, err error) {
		e, ok := err.(*dohost.Error)
		if !ok || e.Error() == "" {
			t.Errorf("%s: %v", what, err)
			return
		}
		_, _ = e.Overloaded(), e.Reset()
		w := httptest.NewRecorder()
		h.WriteError(w, err)
		if b, _ := dohost.DescribeError(err); w.Code < 400 || b.Message == "" {
			t.Errorf("%s: %d %+v", what, w.Code, b)
		}
	}
	_, methodErr := h.Invoke(ctx, nilObjects.Get(h, "a").ID(), "fail", []byte("false"))
	describe("a method", methodErr)
	_, abortErr := h.Invoke(ctx, nilObjects.Get(h, "a").ID(), "fail", []byte("true"))
	describe("an abort", abortErr)
	describe("a call that did not run", &dohost.Error{Op: "x", Err: err, Outcome: dohost.OutcomeNotRun})
	if e, ok := errors.AsType[*dohost.Error](err); ok && (e.Remote() || e.Overloaded() || e.Reset()) {
		t.Error("a nil *Error has properties")
	}
	describe("a constructor", nilObjects.Get(h, "b").Do(ctx, func(context.Context, *nilObject) error { return nil }))
	if !atOpen {
		t.Error("the constructor was not called")
	}
	if w := serve("a", t.Context()); w.Code < 400 {
		t.Errorf("WriteError: %d", w.Code)
	}
	if w := serve("c", t.Context()); w.Code != http.StatusForbidden {
		t.Errorf("Authorize: %d", w.Code)
	}
	r := handshake(t.Context())
	w := httptest.NewRecorder()
	if h.ServeObject(w, r, nilObjects.Get(h, "c").ID()); w.Code != http.StatusForbidden {
		t.Errorf("Authorize of a WebSocket: %d", w.Code)
	}
	checked := dohost.CheckCreation(t.Context(), func(*dohost.AccessRequest) error { return err })
	if w := serve("new", checked); w.Code < 400 {
		t.Errorf("CheckCreation: %d", w.Code)
	}
	checked = dohost.CheckCreation(t.Context(), func(*dohost.AccessRequest) error { return &dohost.PublicError{Message: "no", Err: err} })
	if w := serve("new", checked); w.Code != http.StatusInternalServerError {
		t.Errorf("CheckCreation, public: %d", w.Code)
	}
	for _, policy := range []*dohost.RetryPolicy{nil, {ShouldRetry: dohost.RetryIdempotent}, {ShouldRetry: dohost.RetryAnyError}} {
		if got := dohost.Retry(t.Context(), policy, func(context.Context) error { return err }); !errors.Is(got, err) {
			t.Errorf("Retry: %v", got)
		}
	}
}

// nilPanics is an error of a program: its methods panic for a nil pointer.
type nilPanics struct{ err error }

func (e *nilPanics) Error() string      { return e.err.Error() }
func (e *nilPanics) PublicText() string { return e.err.Error() }

// nilUnwraps is an error of a program: Unwrap panics for a nil pointer.
type nilUnwraps struct{ err error }

func (e *nilUnwraps) Error() string { return "unwraps" }
func (e *nilUnwraps) Unwrap() error { return e.err }

// TestErrorsWithMethodsThatPanicAreInternal describes nil pointers of the program's own types, for HTTP and for frames.
func TestErrorsWithMethodsThatPanicAreInternal(t *testing.T) {
	for _, texts := range []bool{false, true} {
		h := open(t, &dohost.Options{ErrorTexts: texts}, dohost.Bind(nilObjects,
			func(_ context.Context, st *dohost.State) (*nilObject, error) { return &nilObject{st}, nil }, nil))
		for _, err := range []error{(*nilPanics)(nil), (*nilUnwraps)(nil), fmt.Errorf("wrapped: %w", error((*nilUnwraps)(nil)))} {
			for _, err := range []error{err, &dohost.Error{Op: "x", Err: err, Outcome: dohost.OutcomeRan}} {
				w := httptest.NewRecorder()
				h.WriteError(w, err)
				b, status := dohost.DescribeError(err)
				if w.Code != http.StatusInternalServerError || status != w.Code || b.Message == "" {
					t.Errorf("%T: %d %s, %+v", err, w.Code, w.Body, b)
				}
				if e, ok := err.(*dohost.Error); ok && (b.Op != e.Op || b.Ran != "yes") {
					t.Errorf("%+v", b)
				}
			}
			called := nilObjects.Get(h, "a").Do(t.Context(), func(_ context.Context, o *nilObject) error {
				if text := o.st.ErrorText("x", err); text == "" {
					t.Error("ErrorText is empty")
				}
				return nil
			})
			if called != nil {
				t.Error(called)
			}
		}
	}
}

package dohost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/examples/counter"
	"github.com/dohost/dohost/runtime"
)

// TestDescribeErrorOfWrappedCauses has errors with causes that have codes of their own.
func TestDescribeErrorOfWrappedCauses(t *testing.T) {
	aborted := &dohost.Fenced{Reason: dohost.ReasonAborted, Err: fmt.Errorf("callee: %w", dohost.ErrOverloaded)}
	for _, c := range []struct {
		err    *dohost.Error
		code   string
		status int
	}{
		{&dohost.Error{Err: aborted}, "fenced", http.StatusInternalServerError},
		{&dohost.Error{Err: fmt.Errorf("%w: %w", runtime.ErrConstructor, runtime.ErrNoMethod), Outcome: dohost.OutcomeNotRun}, "constructor", http.StatusInternalServerError},
		{&dohost.Error{Err: fmt.Errorf("%w: %w", runtime.ErrConstructor, dohost.ErrNoSpace), Outcome: dohost.OutcomeNotRun}, "no_space", http.StatusInsufficientStorage},
		{&dohost.Error{Err: runtime.ErrHalfImported, Outcome: dohost.OutcomeNotRun}, "half_imported", http.StatusConflict},
		{&dohost.Error{Err: dohost.ErrOverloaded, Outcome: dohost.OutcomeRan}, "failed", http.StatusInternalServerError},
		{&dohost.Error{Err: dohost.ErrOverloaded, Outcome: dohost.OutcomeNotRun}, "overloaded", http.StatusServiceUnavailable},
		{&dohost.Error{Err: &dohost.Fenced{Reason: dohost.ReasonClosing}}, "fenced", http.StatusServiceUnavailable},
		{&dohost.Error{Err: &dohost.Fenced{Reason: dohost.ReasonStall}}, "fenced", http.StatusServiceUnavailable},
		{&dohost.Error{Err: &dohost.Fenced{Reason: dohost.ReasonStore, Err: fmt.Errorf("%w: no lease", dohost.ErrFenced)}}, "fenced", http.StatusServiceUnavailable},
		{&dohost.Error{Err: &dohost.Fenced{Reason: dohost.ReasonStore, Err: errors.New("no disk")}}, "fenced", http.StatusInternalServerError},
		{&dohost.Error{Err: &dohost.Fenced{Reason: dohost.ReasonAborted, Err: fmt.Errorf("callee: %w", dohost.ErrFenced)}}, "fenced", http.StatusInternalServerError},
		{&dohost.Error{Err: context.DeadlineExceeded}, "timeout", http.StatusGatewayTimeout},
	} {
		if b, status := dohost.DescribeError(c.err); b.Code != c.code || status != c.status {
			t.Errorf("%v: %s %d, want %s %d", c.err.Err, b.Code, status, c.code, c.status)
		}
	}
}

// TestDescribeErrorHidesInternals has panics and errors of constructors with texts that callers must not get.
func TestDescribeErrorHidesInternals(t *testing.T) {
	secret := errors.New("postgres://svc:Hunter2@10.0.0.5/db")
	for _, err := range []error{
		&dohost.Error{Err: &dohost.Fenced{Reason: "panic", Err: &dohost.PanicError{Value: secret}}},
		&dohost.Error{Err: &dohost.PanicError{Value: secret}},
		&dohost.Error{Err: fmt.Errorf("%w (next attempt in 1s): %w", runtime.ErrConstructor, secret), Outcome: dohost.OutcomeNotRun},
		fmt.Errorf("wrapped: %w", &dohost.PanicError{Value: secret}),
	} {
		if b, _ := dohost.DescribeError(err); strings.Contains(b.Message, "Hunter2") || b.Message == "" {
			t.Errorf("%v: %q", err, b.Message)
		}
	}
	if b, _ := dohost.DescribeError(&dohost.Error{Err: errors.New("the room is full"), Outcome: dohost.OutcomeRan}); b.Message != "the room is full" {
		t.Errorf("an object's own error: %q", b.Message)
	}
}

// TestWriteErrorSendsPublicTextsOnly writes errors of calls as a client gets them, and looks for a secret in them.
func TestWriteErrorSendsPublicTextsOnly(t *testing.T) {
	const secret = "postgres://svc:Hunter2@10.0.0.5/db"
	inner := errors.New(secret)
	public := fmt.Errorf("%s: %w", secret, &dohost.PublicError{Message: "no seat is left", Code: "full", Status: http.StatusConflict, Err: inner})
	for name, c := range map[string]struct {
		err           error
		code, message string
		status        int
	}{
		"an error of a method":                  {&dohost.Error{Err: inner, Outcome: dohost.OutcomeRan}, "failed", "internal error", 500},
		"a wrapped error of dohost of a method": {&dohost.Error{Err: fmt.Errorf("%s: %w", secret, runtime.ErrNoMethod), Outcome: dohost.OutcomeRan}, "failed", "internal error", 500},
		"a full disk in a method":               {&dohost.Error{Err: fmt.Errorf("%s: %w", secret, dohost.ErrNoSpace), Outcome: dohost.OutcomeRan}, "no_space", dohost.ErrNoSpace.Error(), 507},
		"a public error":                        {&dohost.Error{Err: public, Outcome: dohost.OutcomeRan}, "full", "no seat is left", 409},
		"a public error without more":           {&dohost.Error{Err: &dohost.PublicError{Message: "no", Status: 17}, Outcome: dohost.OutcomeRan}, "failed", "no", 500},
		"a panic":                               {&dohost.Error{Err: &dohost.Fenced{Reason: "panic", Err: &dohost.PanicError{Value: inner}}}, "fenced", "the object's code panicked", 500},
		"an abort":                              {&dohost.Error{Err: &dohost.Fenced{Reason: "aborted", Err: inner}}, "fenced", dohost.ErrFenced.Error(), 500},
		"a constructor":                         {&dohost.Error{Err: fmt.Errorf("%w: %w", runtime.ErrConstructor, inner), Outcome: dohost.OutcomeNotRun}, "constructor", runtime.ErrConstructor.Error(), 500},
		"a time limit":                          {&dohost.Error{Err: fmt.Errorf("%s: %w", secret, context.DeadlineExceeded)}, "timeout", context.DeadlineExceeded.Error(), 504},
		"an error of the store":                 {&dohost.Error{Err: inner}, "internal", "internal error", 500},
		"an error without a call":               {inner, "internal", "internal error", 500},
		"an unknown method":                     {&dohost.Error{Err: fmt.Errorf("%w: %q", runtime.ErrNoMethod, "fly"), Outcome: dohost.OutcomeNotRun}, "no_method", runtime.ErrNoMethod.Error() + `: "fly"`, 404},
		"an argument":                           {&dohost.Error{Err: &dohost.ArgumentError{Method: "add", Err: errors.New("want a number")}, Outcome: dohost.OutcomeNotRun}, "bad_argument", "argument of add: want a number", 400},
	} {
		var log strings.Builder
		h, err := dohost.Open(t.TempDir(), &dohost.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		log.Reset()
		w := httptest.NewRecorder()
		h.WriteError(w, c.err)
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		var b dohost.ErrorBody
		if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil {
			t.Fatal(err)
		}
		if b.Code != c.code || b.Message != c.message || w.Code != c.status || strings.Contains(w.Body.String(), "Hunter2") {
			t.Errorf("%s: %d %s, want %d %s %q", name, w.Code, w.Body, c.status, c.code, c.message)
		}
		hidden := c.message == "internal error"
		if hidden != (b.ID != "") || hidden != strings.Contains(log.String(), "Hunter2") || hidden && !strings.Contains(log.String(), b.ID) {
			t.Errorf("%s: id %q, log %q", name, b.ID, log.String())
		}
	}
}

// TestErrorTextsOptionSendsEveryText has a host that gives clients the text of every error.
func TestErrorTextsOptionSendsEveryText(t *testing.T) {
	h, err := dohost.Open(t.TempDir(), &dohost.Options{ErrorTexts: true})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	w := httptest.NewRecorder()
	h.WriteError(w, &dohost.Error{Err: errors.New("no such table"), Outcome: dohost.OutcomeRan})
	if !strings.Contains(w.Body.String(), `"message":"no such table"`) {
		t.Error(w.Body)
	}
}

// TestTextOfAnArgumentErrorIsCut has decoders that quote the whole argument, as encoding/json does for a number.
func TestTextOfAnArgumentErrorIsCut(t *testing.T) {
	const most = 512
	h := open(t, nil, counter.Class())
	_, err := h.Invoke(t.Context(), counter.Counters.Get(h, "a").ID(), "add", []byte(strings.Repeat("1", 1<<20)))
	w := httptest.NewRecorder()
	h.WriteError(w, err)
	var b dohost.ErrorBody
	if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil {
		t.Fatal(err)
	}
	if b.Code != "bad_argument" || len(b.Message) > most || w.Body.Len() > most+300 ||
		!strings.HasPrefix(b.Message, "argument of add: json: ") || !strings.HasSuffix(b.Message, "1…") {
		t.Errorf("%d bytes: %+v", w.Body.Len(), b)
	}
	for n := range 5 { // the cut falls on each byte of a rune
		text := (&dohost.ArgumentError{Method: strings.Repeat("m", n), Err: errors.New(strings.Repeat("😀", 200))}).Error()
		if len(text) > most || len(text) < most-3 || !utf8.ValidString(text) || !strings.HasSuffix(text, "😀…") {
			t.Errorf("%d bytes: %q", len(text), text)
		}
	}
	text := "dohost: argument of m: " + strings.Repeat("x", most-len("dohost: argument of m: "))
	err = &dohost.ArgumentError{Method: "m", Err: errors.New(strings.TrimPrefix(text, "dohost: argument of m: "))}
	if err.Error() != text {
		t.Errorf("a text of %d bytes: %q", most, err)
	}
}

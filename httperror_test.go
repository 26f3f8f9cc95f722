package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/runtime"
)

// TestDescribeErrorSeesThroughCauses has errors whose causes have codes of their own.
func TestDescribeErrorSeesThroughCauses(t *testing.T) {
	aborted := &dohost.Fenced{Reason: runtime.ReasonAborted, Err: fmt.Errorf("callee: %w", dohost.ErrOverloaded)}
	for _, c := range []struct {
		err    *dohost.Error
		code   string
		status int
	}{
		{&dohost.Error{Err: aborted, Reset: true}, "fenced", http.StatusInternalServerError},
		{&dohost.Error{Err: fmt.Errorf("%w: %w", dohost.ErrConstructor, dohost.ErrNoMethod), Ran: dohost.RanNo}, "constructor", http.StatusInternalServerError},
		{&dohost.Error{Err: fmt.Errorf("%w: %w", dohost.ErrConstructor, dohost.ErrNoSpace), Ran: dohost.RanNo}, "no_space", http.StatusInsufficientStorage},
		{&dohost.Error{Err: dohost.ErrHalfImported, Ran: dohost.RanNo}, "half_imported", http.StatusConflict},
		{&dohost.Error{Err: dohost.ErrOverloaded, Ran: dohost.RanYes, Remote: true}, "failed", http.StatusInternalServerError},
		{&dohost.Error{Err: dohost.ErrOverloaded, Ran: dohost.RanNo, Overloaded: true}, "overloaded", http.StatusServiceUnavailable},
		{&dohost.Error{Err: &dohost.Fenced{Reason: runtime.ReasonClosing}, Reset: true}, "fenced", http.StatusServiceUnavailable},
		{&dohost.Error{Err: context.DeadlineExceeded}, "timeout", http.StatusGatewayTimeout},
	} {
		if b, status := dohost.DescribeError(c.err); b.Code != c.code || status != c.status {
			t.Errorf("%v: %s %d, want %s %d", c.err.Err, b.Code, status, c.code, c.status)
		}
	}
}

// TestDescribeErrorHidesInternals has panics and constructors that say more than callers may know.
func TestDescribeErrorHidesInternals(t *testing.T) {
	secret := errors.New("postgres://svc:Hunter2@10.0.0.5/db")
	for _, err := range []error{
		&dohost.Error{Err: &dohost.Fenced{Reason: "panic", Err: &dohost.PanicError{Value: secret}}},
		&dohost.Error{Err: &dohost.PanicError{Value: secret}, Remote: true},
		&dohost.Error{Err: fmt.Errorf("%w (next try in 1s): %w", dohost.ErrConstructor, secret), Ran: dohost.RanNo},
		fmt.Errorf("wrapped: %w", &dohost.PanicError{Value: secret}),
	} {
		if b, _ := dohost.DescribeError(err); strings.Contains(b.Message, "Hunter2") || b.Message == "" {
			t.Errorf("%v: %q", err, b.Message)
		}
	}
	if b, _ := dohost.DescribeError(&dohost.Error{Err: errors.New("the room is full"), Remote: true, Ran: dohost.RanYes}); b.Message != "the room is full" {
		t.Errorf("an object's own error: %q", b.Message)
	}
}

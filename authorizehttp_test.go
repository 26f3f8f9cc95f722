package dohost_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/dohost/dohost"
)

// TestAuthorizeHTTPDecidesAsServeObjectDoes has the same questions and answers as a request of ServeObject, and wakes nothing.
func TestAuthorizeHTTPDecidesAsServeObjectDoes(t *testing.T) {
	var kinds []string
	v := openGuarded(t, func(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
		kinds = append(kinds, r.Kind.String()+" "+r.ID.Name)
		switch r.ID.Name {
		case "reader":
			return dohost.Access{Identity: "ada", Rights: dohost.RightsReadOnly}, nil
		case "absent":
			return dohost.Access{Rights: dohost.RightsReadWrite}, nil
		case "stranger":
			return dohost.Access{}, dohost.ErrUnauthenticated
		}
		return dohost.Access{}, nil
	})
	r, err := http.NewRequestWithContext(t.Context(), "GET", "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := v.AuthorizeHTTP(r, guardedObjects.Get(v.Host, "reader").ID())
	if err != nil {
		t.Fatal(err)
	}
	same(t, "access", accessIn(ctx), "ada1 true")
	limited := r.WithContext(dohost.CheckCreation(r.Context(), func(*dohost.AccessRequest) error { return dohost.ErrOverloaded }))
	for _, tt := range []struct {
		r    *http.Request
		id   dohost.ID
		want error
	}{
		{r, guardedObjects.Get(v.Host, "stranger").ID(), dohost.ErrUnauthenticated},
		{r, guardedObjects.Get(v.Host, "nobody").ID(), dohost.ErrForbidden},
		{limited, guardedObjects.Get(v.Host, "absent").ID(), dohost.ErrOverloaded},
		{r, dohost.ID{Class: "unbound", Name: "a"}, dohost.ErrNotFound},
	} {
		if _, err := v.AuthorizeHTTP(tt.r, tt.id); !errors.Is(err, tt.want) {
			t.Errorf("%v: %v, want %v", tt.id, err, tt.want)
		}
	}
	if _, err := v.AuthorizeHTTP(r, guardedObjects.Get(v.Host, "").ID()); err == nil {
		t.Error("an empty name is allowed")
	}
	same(t, "questions", strings.Join(kinds, ", "), "http reader, http stranger, http nobody, http absent")
	v.untouched(t, "reader")
}

// TestClosingEndsBeforeCloseReturns closes a host.
func TestClosingEndsBeforeCloseReturns(t *testing.T) {
	v := openGuarded(t, nil)
	select {
	case <-v.Closing():
		t.Fatal("the host closes")
	default:
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-v.Closing():
	default:
		t.Error("the host is closed, and Closing is open")
	}
}

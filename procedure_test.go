package dohost_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/objectstore"
)

// paying is a payment of an account.
type paying struct {
	To string
	N  int
}

var errNoAccount = errors.New("the object is no account")

// The procedures of the tests. credit works with objects of any class.
var (
	credit = dohost.NewProcedure("test.credit", func(ctx context.Context, object any, n int) (int, error) {
		a, ok := object.(*account)
		if !ok {
			return 0, errNoAccount
		}
		return a.deposit(ctx, n)
	})
	pay = dohost.NewProcedure("test.pay", func(ctx context.Context, object any, p paying) (int, error) {
		a := object.(*account)
		if _, err := a.deposit(ctx, -p.N); err != nil {
			return 0, err
		}
		return credit.Call(ctx, a.st, dohost.ID{Class: string(accounts), Name: p.To}, p.N, nil)
	})
)

// TestProcedureOfAnotherHost pays from an object of each host to one of the other, and to one of the same host. The first answers are lost.
func TestProcedureOfAnotherHost(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		p.fault = func(n int64, after bool) error {
			if after && n <= 3 {
				return errLost
			}
			return nil
		}
		id := func(name string) dohost.ID { return dohost.ID{Class: string(accounts), Name: name} }
		for _, to := range []string{"a1", "a2", "b1", "b2"} {
			for _, from := range []string{"a", "b"} {
				if _, err := pay.Call(t.Context(), p, id(from), paying{to, 5}, nil); err != nil {
					t.Errorf("from %s to %s: %v", from, to, err)
				}
			}
		}
		for name, want := range map[string]int{"a": -20, "b": -20, "a1": 10, "a2": 10, "b1": 10, "b2": 10} {
			if n, err := credit.Call(t.Context(), p, id(name), 0, nil); err != nil || n != want {
				t.Errorf("%s has %d, want %d: %v", name, n, want, err)
			}
		}
		_, err := credit.Call(t.Context(), p, dohost.ID{Class: "none", Name: "b"}, 1, nil)
		if e, ok := err.(*dohost.Error); !ok || !errors.Is(err, dohost.ErrNotFound) || e.Outcome != dohost.OutcomeNotRun {
			t.Errorf("of an unknown class: %v", err)
		}
		var none dohost.Procedure[int, int]
		if _, err := none.Call(t.Context(), p, id("a"), 1, nil); !errors.Is(err, dohost.ErrNotFound) {
			t.Errorf("the zero Procedure: %v", err)
		}
	})
}

// TestClientsCannotCallProcedures asks for procedures as clients do, also with all rights. The answers are those for a method that does not exist.
func TestClientsCannotCallProcedures(t *testing.T) {
	h := openOn(t, objectstore.NewMemFS(), nil, accountClass())
	id := accounts.Get(h, "a").ID()
	all := dohost.GrantAccess(t.Context(), dohost.Access{Rights: dohost.RightsReadWrite})
	for _, method := range []string{"dohost.test.credit", "test.credit", "dohost.", "dohost.none"} {
		for _, ctx := range []context.Context{t.Context(), all} {
			_, err := h.Invoke(ctx, id, method, []byte("1"))
			if b, status := dohost.DescribeError(err); b.Code != "no_method" || status != http.StatusNotFound || b.Ran != "no" {
				t.Errorf("Invoke of %s: %v", method, err)
			}
			_, err = h.AuthorizeCall(httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil), id, method)
			if b, _ := dohost.DescribeError(err); b.Code != "no_method" {
				t.Errorf("AuthorizeCall of %s: %v", method, err)
			}
		}
	}
	if exists, err := h.Exists(t.Context(), id); err != nil || exists {
		t.Errorf("the object exists: %t, %v", exists, err)
	}
	wrong := dohost.Bind(accounts, func(_ context.Context, st *dohost.State) (*account, error) { return &account{st}, nil }, nil,
		dohost.Expose("dohost.test.credit", (*account).deposit))
	if _, err := dohost.Open(t.TempDir(), nil, wrong); err == nil || !strings.Contains(err.Error(), `names that begin with "dohost." are reserved`) {
		t.Errorf("a class exposes a method with the name of a procedure: %v", err)
	}
}

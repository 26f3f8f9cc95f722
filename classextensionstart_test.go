package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/dohost/dohost"
)

// TestExtensionsStartBeforeTheConstructor adds two extensions to a class, which start in the order of the list. Their writes are those of the
// constructor's batch, and an error of one of them fails the waiting event.
func TestExtensionsStartBeforeTheConstructor(t *testing.T) {
	var order []string
	var failure error
	starts := func(kind string) dohost.ClassExtension {
		return dohost.ClassExtension{
			Kinds:   []string{kind},
			Inspect: func(context.Context, *dohost.Snapshot) iter.Seq2[dohost.Resource, error] { return nil },
			Admin:   func(context.Context, *dohost.State, any, *dohost.AdminRequest) (bool, error) { return false, nil },
			Start: func(ctx context.Context, st *dohost.State) error {
				order = append(order, kind)
				return errors.Join(guests.Put(ctx, st.Storage(), guest{Name: kind}), failure)
			},
		}
	}
	class := dohost.Bind(parties, func(ctx context.Context, st *dohost.State) (*party, error) {
		n, err := guests.Count(ctx, st.Storage(), nil)
		order = append(order, fmt.Sprintf("constructor with %d rows", n))
		return &party{st}, err
	}, &dohost.Handlers[party]{Extensions: []dohost.ClassExtension{starts("first"), starts("second")}})
	h := open(t, nil, class)
	touch := func(name string) error {
		return parties.Get(h, name).Do(t.Context(), func(context.Context, *party) error { return nil })
	}
	if err := touch("a"); err != nil || fmt.Sprint(order) != "[first second constructor with 2 rows]" {
		t.Errorf("%v, %v", order, err)
	}
	failure, order = errors.New("cannot start"), nil
	if err := touch("b"); !errors.Is(err, failure) || fmt.Sprint(order) != "[first]" {
		t.Errorf("%v, %v", order, err)
	}
}

package simtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// allowance is an object that refuses, and stores the refusal: the error of a handler is a
// result like any other.
type allowance struct{ st *dohost.State }

var allowances dohost.Namespace[allowance] = "allowance"

var errOverspent = errors.New("not enough money")

// spend refuses a sum that exceeds the rest, each ID once and for ever.
func (p *allowance) spend(ctx context.Context, a addition) (none, error) {
	s := p.st.Storage()
	spent, _, err := dohost.Get[int](ctx, s, "spent")
	if err != nil {
		return none{}, err
	}
	if spent+a.N <= 10 {
		return none{}, dohost.Put(ctx, s, "spent", spent+a.N)
	}
	return none{}, errors.Join(dohost.Put(ctx, s, "refused/"+a.ID, true), errOverspent)
}

func (p *allowance) refused(ctx context.Context, _ none) (keys []string, err error) {
	items, err := dohost.List[bool](ctx, p.st.Storage(), &dohost.ListOptions{Prefix: "refused/"})
	for _, it := range items {
		keys = append(keys, it.Key)
	}
	return keys, err
}

// newRefusal has a client that is refused, and remembers it.
func newRefusal() dohosttest.Scenario {
	var refusals []string
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(allowances, func(_ context.Context, st *dohost.State) (*allowance, error) {
			return &allowance{st}, nil
		}, nil)},
		Reset: func() { refusals = nil },
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			for i := range 3 {
				id := fmt.Sprint(i)
				_, err := dohost.Call(ctx, allowances.Get(h, "a"), (*allowance).spend, addition{id, 20})
				if errors.Is(err, errOverspent) {
					refusals = append(refusals, "refused/"+id)
				}
			}
			return nil
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			keys, err := dohost.Call(ctx, allowances.Get(h, "a"), (*allowance).refused, none{})
			there := map[string]bool{}
			for _, key := range keys {
				there[key] = true
			}
			for _, key := range refusals {
				if !there[key] {
					err = errors.Join(err, fmt.Errorf("%s is lost, its client got %q", key, errOverspent))
				}
			}
			return err
		},
	}
}

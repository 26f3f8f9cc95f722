//go:build e2e

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/ledger"
)

// shop is a plain object that charges orders at a bank.
type shop struct{ st *dohost.State }

// order is the argument of a charge.
type order struct {
	Order string
	Cents int
}

// charges are the operations of a shop. The bank cannot be asked, so an operator resolves a charge with an unknown outcome.
var charges = ledger.Kind[order, string]{
	Name: "charge", Same: ledger.Whole[order], Policy: ledger.PolicyAtMostOnce,
	Unknown: func(_ ledger.ID, o order) string { return "the bank may have charged order " + o.Order },
}

func shopClass() dohost.Class {
	return dohost.Bind(dohost.Namespace[shop]("Shop"),
		func(_ context.Context, st *dohost.State) (*shop, error) { return &shop{st}, nil },
		&dohost.Handlers[shop]{Extensions: []dohost.ClassExtension{ledger.Declare(&charges)}}, dohost.Expose("charge", (*shop).charge))
}

func (s *shop) charge(ctx context.Context, o order) (string, error) {
	return ledger.Do(ctx, s.st, &charges, o, func(context.Context, ledger.ID) (string, error) { return bank.charge(o.Order) })
}

// bank is the bank of this process.
var bank = unreliable{calls: map[string]int{}}

// unreliable is a bank that breaks the connection of the first call for each order, and answers the later ones.
type unreliable struct {
	mu    sync.Mutex // guards calls
	calls map[string]int
}

// charge returns a receipt with the number of calls for the order.
func (b *unreliable) charge(order string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls[order]++
	if b.calls[order] == 1 {
		return "", errors.New("connection reset by the bank")
	}
	return fmt.Sprintf("call %d of %s", b.calls[order], order), nil
}

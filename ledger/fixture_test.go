package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// charge is the argument of the operations of these tests.
type charge struct {
	Order string
	Cents int
}

// shop makes charges. Its fields are shared by all incarnations.
type shop struct {
	kind ledger.Kind[charge, string]
	bank dohosttest.FakeService
	// listener is that of the host.
	listener dohost.Listener
	// more is added to each receipt.
	more string
	// before and after are called around each request to the bank.
	before, after func(ctx context.Context, id ledger.ID) error

	mu  sync.Mutex
	ids []ledger.ID // of all calls
}

// reset forgets the calls.
func (s *shop) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = nil
}

// calls returns the IDs of all calls.
func (s *shop) calls() []ledger.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ids)
}

// newShop returns a shop with a policy, and a bank that suits the policy.
func newShop(p ledger.Policy) *shop {
	s := &shop{}
	s.bank.Idempotent = p == ledger.PolicyIdempotent
	s.kind = ledger.Kind[charge, string]{
		Name: "charge", Same: ledger.Whole[charge], Policy: p,
		Unknown: func(id ledger.ID, c charge) string { return fmt.Sprintf("order %s may have been charged", c.Order) },
	}
	if p == ledger.PolicyReconcile {
		s.kind.Find = s.find
	}
	return s
}

// find asks the bank.
func (s *shop) find(_ context.Context, id ledger.ID, _ charge) (string, ledger.Answer, error) {
	if s.bank.Effects(string(id)) > 0 {
		return receipt(id) + s.more, ledger.AnswerDone, nil
	}
	return "", ledger.AnswerNotDone, nil
}

func receipt(id ledger.ID) string { return "receipt " + string(id) }

// request requests a charge from the bank.
func (s *shop) request(ctx context.Context, id ledger.ID) (string, error) {
	s.mu.Lock()
	s.ids = append(s.ids, id)
	s.mu.Unlock()
	if s.before != nil {
		if err := s.before(ctx, id); err != nil {
			return "", err
		}
	}
	if err := s.bank.Call(ctx, string(id), "charge"); err != nil {
		return "", err
	}
	if s.after != nil {
		if err := s.after(ctx, id); err != nil {
			return "", err
		}
	}
	return receipt(id) + s.more, nil
}

// order is an object that pays with a shop.
type order struct {
	st *dohost.State
	s  *shop
}

const orders = dohost.Namespace[order]("order")

func (s *shop) class() dohost.Class { return s.extended(ledger.Declare(&s.kind)) }

// extended returns a class of orders with extensions.
func (s *shop) extended(x ...dohost.ClassExtension) dohost.Class {
	return dohost.Bind(orders, func(_ context.Context, st *dohost.State) (*order, error) {
		return &order{st, s}, nil
	}, &dohost.Handlers[order]{Extensions: x})
}

func (o *order) pay(ctx context.Context, c charge) (string, error) {
	return ledger.Do(ctx, o.st, &o.s.kind, c, o.s.request)
}

// payIn pays in a scope.
func (o *order) payIn(ctx context.Context, scope string) (string, error) {
	return o.pay(ledger.Scope(ctx, scope), charge{"7", 4200})
}

func (o *order) unfinished(ctx context.Context) ([]ledger.Operation, error) {
	return collect(ledger.Unfinished(ctx, o.st))
}

func (o *order) all(ctx context.Context) ([]ledger.Operation, error) {
	return collect(ledger.All(ctx, o.st))
}

// parts counts the rows with parts of large results.
func (o *order) parts(ctx context.Context) (int, error) { return ledger.PartsOf(ctx, o.st) }

func collect(records func(func(ledger.Operation, error) bool)) (all []ledger.Operation, err error) {
	for r, err := range records {
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

func (o *order) done(ctx context.Context, id ledger.ID) error {
	return ledger.ResolveDone(ctx, o.st, &o.s.kind, id, receipt(id)+o.s.more)
}

func (o *order) notDone(ctx context.Context, id ledger.ID) error {
	return ledger.ResolveNotDone(ctx, o.st, &o.s.kind, id)
}

// run runs a test with a host.
func (s *shop) run(t *testing.T, f func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order])) {
	dohosttest.Run(t, &dohosttest.Options{
		Classes: []dohost.Class{s.class()}, Services: []*dohosttest.FakeService{&s.bank},
		Options: dohost.Options{Listener: s.listener},
	}, func(t *testing.T, h *dohosttest.Host) { f(t, h, orders.Get(h, "7")) })
}

// pay pays order 7 once.
func pay(ctx context.Context, o dohost.Stub[order]) (string, error) {
	return dohost.Call(ctx, o, (*order).pay, charge{"7", 4200})
}

// operationsOf returns the operations of an order.
func operationsOf(t *testing.T, o dohost.Stub[order]) []ledger.Operation {
	t.Helper()
	all, err := dohost.CallNoArg(t.Context(), o, (*order).all)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// onlyOperation returns the only operation of an order.
func onlyOperation(t *testing.T, o dohost.Stub[order]) ledger.Operation {
	t.Helper()
	all := operationsOf(t, o)
	if len(all) != 1 {
		t.Fatalf("%d operations, want 1: %+v", len(all), all)
	}
	return all[0]
}

// unknownID returns the ID of an unknown operation.
func unknownID(t *testing.T, err error) ledger.ID {
	t.Helper()
	e, ok := errors.AsType[*ledger.UnknownError](err)
	if !ok || !errors.Is(err, ledger.ErrUnknown) {
		t.Fatalf("the error is %v, want an UnknownError", err)
	}
	return e.ID
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/ledger"
	"github.com/dohost/dohost/objectstore"
)

// spender is an object with outside effects. The double of their service takes no time, so that the figures are those of the
// record.
type spender struct {
	st   *dohost.State
	side *effectSide
}

const spenders dohost.Namespace[spender] = "spender"

// expense is the argument of an operation: its number. Each number is used once.
type expense struct{ Number int }

// request has the effect.
func (s *spender) request(context.Context) (int, error) { return int(s.side.effects.Add(1)), nil }

// do has an effect as an operation of the ledger.
func (s *spender) do(ctx context.Context, number int) (int, error) {
	return ledger.Do(ctx, s.st, s.side.kind, expense{number}, func(ctx context.Context, _ ledger.ID) (int, error) {
		return s.request(ctx)
	})
}

// expenseRow is a row of an effect that is recorded without the ledger.
type expenseRow struct {
	Number  int
	Receipt int // zero before the effect
}

func expenseKey(number int) string { return fmt.Sprintf("expense/%012d", number) }

// byHand has an effect between two writes of a row, which is as safe as the ledger if recovery knows the rows.
func (s *spender) byHand(ctx context.Context, number int) (int, error) {
	if err := dohost.Put(ctx, s.st.Storage(), expenseKey(number), expenseRow{Number: number}); err != nil {
		return 0, err
	}
	return s.awaited(ctx, number)
}

// awaited has an effect, and writes a row after it. An interruption between the two is not noticed.
func (s *spender) awaited(ctx context.Context, number int) (int, error) {
	receipt := 0
	err := dohost.Await(ctx, func(ctx context.Context) (err error) {
		receipt, err = s.request(ctx)
		return err
	})
	if err != nil {
		return 0, err
	}
	return receipt, dohost.Put(ctx, s.st.Storage(), expenseKey(number), expenseRow{number, receipt})
}

// completed returns the receipts of the completed effects by their numbers, from the ledger and from the rows without it.
func (s *spender) completed(ctx context.Context) (receipts map[int]int, err error) {
	receipts = map[int]int{}
	for op, err := range ledger.All(ctx, s.st) {
		if err != nil {
			return nil, err
		}
		var e struct{ Number float64 } // the canonical form of 60 is 6e1
		var receipt int
		err := errors.Join(json.Unmarshal([]byte(op.Args), &e), json.Unmarshal(op.Result, &receipt))
		if err != nil || op.Status != ledger.StatusCompleted {
			return nil, fmt.Errorf("operation %s is %s: %w", op.ID, op.Status, err)
		}
		receipts[int(e.Number)] = receipt
	}
	for row, err := range dohost.All[expenseRow](ctx, s.st.Storage(), &dohost.ListOptions{Prefix: "expense/"}) {
		if err != nil {
			return nil, err
		}
		receipts[row.Value.Number] = row.Value.Receipt
	}
	return receipts, nil
}

// effectSide is a host with spenders, and callers in closed loops.
type effectSide struct {
	*dohost.Host
	fs               *objectstore.FS
	dir              string
	objects, callers int
	kind             *ledger.Kind[expense, int]
	method           func(*spender, context.Context, int) (int, error)
	next             atomic.Int64 // number of an effect
	effects          atomic.Int64
	stored           objectstore.Stats // of the store in the rounds
}

// openEffects opens a side with a policy, and a method that has the effect.
func (b *bench) openEffects(p ledger.Policy, method func(*spender, context.Context, int) (int, error)) (s *effectSide, err error) {
	s = &effectSide{objects: 1, callers: 1, method: method, kind: &ledger.Kind[expense, int]{
		Name: "expense", Same: ledger.Whole[expense], Policy: p,
		Unknown: func(_ ledger.ID, e expense) string {
			return fmt.Sprintf("expense %d may have had its effect", e.Number)
		},
	}}
	if p == ledger.PolicyReconcile {
		s.kind.Find = func(context.Context, ledger.ID, expense) (int, ledger.Answer, error) {
			return 0, ledger.AnswerUnknown, errors.New("nothing was interrupted")
		}
	}
	if s.dir, err = b.newDir(); err != nil {
		return nil, err
	}
	return s, s.open()
}

func (s *effectSide) open() (err error) {
	s.fs = objectstore.DiskFS()
	s.Host, err = dohost.Open(s.dir, kernel.OnFS(&dohost.Options{IdleAfter: -1}, s.fs), dohost.Bind(spenders,
		func(_ context.Context, st *dohost.State) (*spender, error) { return &spender{st, s}, nil },
		&dohost.Handlers[spender]{Extensions: []dohost.ClassExtension{ledger.Declare(s.kind)}}))
	return err
}

func (s *effectSide) work(ctx context.Context, m *meter) error {
	before := s.Stats()
	err := m.each(s.callers, func(_ int, w *worker) error {
		for !w.over() {
			began := time.Now()
			if err := s.effect(ctx, s.method); err != nil {
				return err
			}
			w.did(began)
		}
		return nil
	})
	after := s.Stats()
	s.stored.Records += after.Records - before.Records
	s.stored.Batches += after.Batches - before.Batches
	s.stored.Bytes += after.Bytes - before.Bytes
	return err
}

// effect has one new effect.
func (s *effectSide) effect(ctx context.Context, method func(*spender, context.Context, int) (int, error)) error {
	number := int(s.next.Add(1))
	_, err := dohost.Call(ctx, s.stub(number), method, number)
	return err
}

// stub is the object of a number.
func (s *effectSide) stub(number int) dohost.Stub[spender] {
	return spenders.Get(s, name(number%s.objects))
}

// verify reads the effects from the disk: each number is there once, and each effect has one number.
func (s *effectSide) verify(ctx context.Context, done int64) error {
	if err := errors.Join(s.Close(), s.open()); err != nil {
		return err
	}
	if n := s.effects.Load(); n != done {
		return fmt.Errorf("the service has %d effects, and %d calls were answered", n, done)
	}
	receipts := map[int]bool{}
	for i := range s.objects {
		found, err := dohost.CallNoArg(ctx, spenders.Get(s, name(i)), (*spender).completed)
		if err != nil {
			return err
		}
		for number, receipt := range found {
			if number%s.objects != i || number < 1 || int64(number) > done || receipt < 1 || int64(receipt) > done || receipts[receipt] {
				return fmt.Errorf("object %d has the receipt %d for the number %d, and %d calls were answered", i, receipt, number, done)
			}
			receipts[receipt] = true
		}
	}
	if int64(len(receipts)) != done {
		return fmt.Errorf("the objects have %d effects, and %d calls were answered", len(receipts), done)
	}
	return nil
}

func (s *effectSide) syncs() int64 { return s.fs.Syncs() }

func (s *effectSide) close() error { return s.Close() }

// Names of the sides of effects without the ledger.
const (
	byHand  = "Await between two writes"
	awaited = "Await and a write"
)

// ledgerOperations measures operations of one caller, and of many objects with many callers.
func ledgerOperations(ctx context.Context, b *bench) error {
	for _, r := range []struct {
		id, what         string
		objects, callers int
	}{
		{"L1", "operations of package ledger, each with one Await, 1 object, 1 caller", 1, 1},
		{"L2", "the same, 1,000 objects, 64 outstanding", 1000, 64},
	} {
		if err := b.compareEffects(ctx, Row{ID: r.id, What: r.what, Unit: "operations/s"}, r.objects, r.callers); err != nil {
			return fmt.Errorf("%s: %w", r.id, err)
		}
	}
	return nil
}

// compareEffects compares the policies of the ledger with the same number of Awaits without it.
func (b *bench) compareEffects(ctx context.Context, r Row, objects, callers int) (err error) {
	var sides []named
	for _, c := range []struct {
		name   string
		policy ledger.Policy
		method func(*spender, context.Context, int) (int, error)
	}{
		{ours, ledger.PolicyAtMostOnce, (*spender).do},
		{byHand, ledger.PolicyAtMostOnce, (*spender).byHand},
		{awaited, ledger.PolicyAtMostOnce, (*spender).awaited},
		{ledger.PolicyIdempotent.String(), ledger.PolicyIdempotent, (*spender).do},
		{ledger.PolicyReconcile.String(), ledger.PolicyReconcile, (*spender).do},
	} {
		s, err := b.openEffects(c.policy, c.method)
		if err != nil {
			return errors.Join(err, closeAll(sides))
		}
		s.objects, s.callers = objects, callers
		sides = append(sides, named{c.name, s})
	}
	if r.Sides, err = b.compare(ctx, sides...); err != nil {
		return err
	}
	r.Notes = []string{
		"dohost is Do with the policy AtMostOnce; no call is interrupted, so all policies do the same work",
		byHand + ": a row before the Await and the same row after it; " + awaited + ": only the row after it",
		"each operation is a new one, and its row is kept; the service takes no time",
	}
	var commits []string
	for i, f := range r.Sides {
		commits = append(commits, f.Side+" "+sides[i].side.(*effectSide).perOperation(f.Checked))
	}
	r.Notes = append(r.Notes, "for each operation: "+strings.Join(commits, "; "))
	b.add(r)
	return nil
}

// perOperation formats the work of the store for each of n operations.
func (s *effectSide) perOperation(n int64) string {
	each := func(v int64) string { return number(float64(v) / float64(max(1, n))) }
	return fmt.Sprintf("%s commits, %s records and %s B of records", each(s.stored.Batches), each(s.stored.Records), each(s.stored.Bytes))
}

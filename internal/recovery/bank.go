package recovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dohost/dohost/ledger"
)

// bankTime is the time that the bank takes before the effect of a request, and again after it. The share of false unknowns
// depends on it: a call that is interrupted in the first half of that time, or while its row becomes durable, has no effect.
const bankTime = time.Millisecond

// bank is an outside system that does not recognise repeated requests. Each effect is a line of the book.
type bank struct {
	*book
	kind ledger.Kind[payment, int]
	// spend waits until a time is over or the context ends.
	spend func(ctx context.Context, d time.Duration) error
}

// payment is the argument of an operation: a step of a worker.
type payment struct {
	Worker string
	Step   int
}

func newBank(b *book, p ledger.Policy) *bank {
	k := &bank{book: b, spend: spend}
	k.kind = ledger.Kind[payment, int]{
		Name: "payment", Same: ledger.Whole[payment], Policy: p,
		Unknown: func(_ ledger.ID, p payment) string {
			return fmt.Sprintf("step %d of %s may have had its effect", p.Step, p.Worker)
		},
	}
	if p == ledger.PolicyReconcile {
		k.kind.Find = func(_ context.Context, _ ledger.ID, p payment) (int, ledger.Answer, error) {
			had, err := k.has(p)
			if err != nil || !had {
				return 0, ledger.AnswerNotDone, err
			}
			return p.Step, ledger.AnswerDone, nil
		}
	}
	return k
}

// request requests an effect.
func (k *bank) request(ctx context.Context, p payment) error {
	if err := k.spend(ctx, bankTime); err != nil {
		return err
	}
	if err := k.write(effect, p.Worker, p.Step); err != nil {
		return err
	}
	return k.spend(ctx, bankTime)
}

// has reports whether the book has the effect.
func (k *bank) has(p payment) (bool, error) {
	text, err := os.ReadFile(k.f.Name())
	return bytes.Contains(text, fmt.Appendf(nil, lineFormat, effect, p.Worker, p.Step)), err
}

// spend waits for a time, or until ctx ends.
func spend(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pay takes a step as an operation. It acts as the operator of an unknown operation, too: it resolves the operation by the
// book of the bank, after the report.
func (w *worker) pay(ctx context.Context, step int) error {
	k, p := w.out.bank, payment{w.st.ID().Name, step}
	for {
		_, err := ledger.Do(ctx, w.st, &k.kind, p, func(ctx context.Context, _ ledger.ID) (int, error) {
			return step, k.request(ctx, p)
		})
		u, ok := errors.AsType[*ledger.UnknownError](err)
		if !ok {
			return err
		}
		if err := k.write(unknown, p.Worker, step); err != nil {
			return err
		}
		had, err := k.has(p)
		switch {
		case err != nil:
			return err
		case had:
			err = ledger.ResolveDone(ctx, w.st, &k.kind, u.ID, step)
		default:
			err = ledger.ResolveNotDone(ctx, w.st, &k.kind, u.ID)
		}
		if err != nil {
			return err
		}
	}
}

// completedOperations returns the number of completed operations.
func (w *worker) completedOperations(ctx context.Context) (n int, err error) {
	for op, err := range ledger.All(ctx, w.st) {
		if err != nil {
			return n, err
		}
		if op.Status == ledger.StatusCompleted {
			n++
		}
	}
	return n, nil
}

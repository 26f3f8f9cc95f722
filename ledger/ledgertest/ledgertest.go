// Package ledgertest checks whether the policy of a [ledger.Kind] is true.
//
// A kind declares how the ledger treats an operation with an unknown outcome. A declaration may be false: for example, the kind has
// [ledger.PolicyIdempotent], but the service charges twice for one key. [Kind] ends the incarnation at every point of an
// operation, and compares the recorded outcome with the effects at the service:
//
//	func TestCharge(t *testing.T) {
//		bank := &dohosttest.FakeService{Idempotent: true}
//		ledgertest.Kind(t, &charges, Charge{"7", 4200}, func(ctx context.Context, id ledger.ID) (string, error) {
//			return "r_1", bank.Call(ctx, string(id), "4200")
//		}, bank)
//	}
package ledgertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/policytest"
	"github.com/dohost/dohost/ledger"
)

// Kind performs an operation of a kind in a plain object, and ends the incarnation at every point, as
// [dohosttest.EveryPoint] does. The client repeats the Do until it returns a result or an unknown outcome, at most five times, and after a
// result once more. call is the function of the Do. service counts the effects of call, and only its counts decide:
//
//   - PolicyAtMostOnce: at most one effect, and one effect if the result is recorded.
//   - PolicyIdempotent: one effect, and a recorded result. The operation may be unknown if call returned an error.
//   - PolicyReconcile: as for PolicyIdempotent; the operation may also be unknown if Find did not decide.
//
// Kind fails t if a run contradicts the policy; if Find returns Done without an effect or without a result that can be
// decoded, or NotDone after an effect; if an error that proves NoEffect had an effect; and if the service has no effect in any
// run. A failure names call or Find, and ends with a line that replays only that run. t.Log gets the number of unknown
// outcomes, and of those without an effect.
//
// call should request its effect from service with the context that it gets. To end an incarnation between the effect and its
// answer, a service of your own calls [dohosttest.EffectPoint]. To test the errors of call, set
// [dohosttest.FakeService.Fail]. Both runs of an operation are the same operation, so Kind does not test two operations with
// equal arguments. Call Kind once in a test, and not in a bubble of testing/synctest.
func Kind[A, R any](
	t *testing.T, k *ledger.Kind[A, R], args A, call func(ctx context.Context, id ledger.ID) (R, error), service dohosttest.Service,
) {
	t.Helper()
	failures, summary := explore(t, k, args, call, service)
	for _, text := range failures {
		t.Error(text)
	}
	if summary != "" {
		t.Log(summary)
	}
}

// explore is Kind without output.
func explore[A, R any](
	t *testing.T, k *ledger.Kind[A, R], args A, call func(ctx context.Context, id ledger.ID) (R, error), service dohosttest.Service,
) (failures []string, summary string) {
	if k == nil || call == nil {
		return []string{"ledgertest: the kind or the function is nil"}, ""
	}
	s := &policytest.Subject{
		Name: fmt.Sprintf("kind %q", k.Name), Policy: k.Policy, Service: service, Calls: 1,
		Site: policytest.SiteOf(call), FindSite: policytest.SiteOf(k.Find),
	}
	kind := observedKind(s, k)
	s.Class = dohost.Bind(probes, func(_ context.Context, st *dohost.State) (*probe, error) {
		return &probe{st, func(ctx context.Context) (json.RawMessage, error) {
			result, err := ledger.Do(ctx, st, kind, args, observedCall(s, k, call))
			if err != nil {
				return nil, err
			}
			return json.Marshal(result)
		}}, nil
	}, &dohost.Handlers[probe]{Extensions: []dohost.ClassExtension{ledger.Declare(kind)}})
	s.Run, s.Outcomes = run, outcomes
	return s.Explore(t)
}

// observedKind returns a kind whose Find is recorded.
func observedKind[A, R any](s *policytest.Subject, k *ledger.Kind[A, R]) *ledger.Kind[A, R] {
	kind := *k
	if k.Find == nil {
		return &kind
	}
	decode := func(data []byte) error { return json.Unmarshal(data, new(R)) }
	kind.Find = func(ctx context.Context, id ledger.ID, args A) (result R, answer ledger.Answer, err error) {
		s.Find(ctx, string(id), decode, func(ctx context.Context) (any, ledger.Answer, error) {
			result, answer, err = k.Find(ctx, id, args)
			return result, answer, err
		})
		return result, answer, err
	}
	return &kind
}

// observedCall returns a function of a Do whose runs are recorded.
func observedCall[A, R any](
	s *policytest.Subject, k *ledger.Kind[A, R], call func(context.Context, ledger.ID) (R, error),
) func(context.Context, ledger.ID) (R, error) {
	proves := func(err error) bool { return ledger.ProvesNoEffect(err) || k.NoEffect != nil && k.NoEffect(err) }
	return func(ctx context.Context, id ledger.ID) (result R, err error) {
		s.Call(ctx, string(id), proves, func(ctx context.Context) (any, error) {
			result, err = call(ctx, id)
			return result, err
		})
		return result, err
	}
}

// probe is the object of the operation.
type probe struct {
	st *dohost.State
	do func(ctx context.Context) (json.RawMessage, error)
}

const probes dohost.Namespace[probe] = "ledgertest"

func (p *probe) perform(ctx context.Context) (json.RawMessage, error) { return p.do(ctx) }

func (p *probe) operations(ctx context.Context) (list []ledger.Operation, err error) {
	for op, err := range ledger.All(ctx, p.st) {
		if err != nil {
			return nil, err
		}
		list = append(list, op)
	}
	return list, nil
}

// maxDos is the number of Dos of a client while the function returns errors.
const maxDos = 5

// run is the client. It accepts errors of the function: the outcome is checked later.
func run(ctx context.Context, h *dohosttest.Host) error {
	do := func() (result json.RawMessage, err error) {
		err = dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
			result, err = dohost.CallNoArg(ctx, probes.Get(h, "1"), (*probe).perform)
			return err
		})
		return result, err
	}
	var failed error
	for range maxDos {
		result, err := do()
		switch {
		case errors.Is(err, ledger.ErrUnknown):
			return nil
		case err != nil:
			failed = err
			continue
		}
		again, err := do()
		if err == nil && !bytes.Equal(again, result) {
			err = fmt.Errorf("a second Do returns %s, want %s", again, result)
		}
		return err
	}
	if ops, err := dohost.CallNoArg(ctx, probes.Get(h, "1"), (*probe).operations); err != nil || len(ops) > 0 {
		return err
	}
	return failed // no call has begun
}

// outcomes returns the outcome of the operation.
func outcomes(ctx context.Context, h *dohosttest.Host) (list []policytest.Outcome, err error) {
	ops, err := dohost.CallNoArg(ctx, probes.Get(h, "1"), (*probe).operations)
	for _, op := range ops {
		list = append(list, policytest.Outcome{ID: string(op.ID), Status: string(op.Status), Text: op.Error})
	}
	return list, err
}

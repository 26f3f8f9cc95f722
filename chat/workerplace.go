package chat

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/ledger"
)

// workerPlace is the place of a run of a worker. Its name is a part of the identity of operations, and so of the format on disk.
type workerPlace struct {
	caller          *dohost.WorkPosition
	step            string // the run, among the steps of the caller
	number, ordinal uint64
	name            string
	scope           []string // of the caller
}

// newWorkerPlace returns the place of a run with an input: the position of the caller, and the ordinal of the run among the
// equal ones that have succeeded since that position. Without a position it is one place for all equal runs in a scope.
func newWorkerPlace(ctx context.Context, worker string, input []byte) (p workerPlace, err error) {
	p = workerPlace{caller: dohost.WorkPositionOf(ctx), scope: ledger.ScopeOf(ctx)}
	p.name = fmt.Sprintf("worker/%s/%s", worker, digest(input))
	if p.caller.Name() == "" {
		return p, nil
	}
	p.step = fmt.Sprintf("%s in %q", p.name, p.scope)
	if p.number, p.ordinal, err = p.caller.Next(ctx, p.step); err != nil {
		return p, err
	}
	p.name = fmt.Sprintf("%s/%d/%d/%s", p.caller.Name(), p.number, p.ordinal, p.name)
	return p, nil
}

// context returns a context for an operation of the run, in the scope of the caller. number separates equal operations.
func (p *workerPlace) context(ctx context.Context, number uint64) context.Context {
	ctx = fixedPosition(p.name, number).Context(ctx)
	for _, name := range p.scope {
		ctx = ledger.Scope(ctx, name)
	}
	return ctx
}

// key returns the key of a call that is no operation of the ledger. It is a function of the object and of the place of the call, so all
// repetitions of the run have it. The digest and the names may have any bytes: %q keeps them apart, and JSON does not.
func (p *workerPlace) key(of dohost.ID, c *workerCall) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d", []string{of.String(), p.name, c.tool.Name, c.id.digest}, p.scope, c.id.number))
	return "call_" + hex.EncodeToString(sum[:16])
}

// pass records that the run has succeeded.
func (p *workerPlace) pass() {
	if p.caller.Name() != "" {
		p.caller.Pass(p.step, p.number, p.ordinal)
	}
}

// fixedPosition returns a position with a number that does not change.
func fixedPosition(work string, number uint64) *dohost.WorkPosition {
	return dohost.NewWorkPosition(work, func(context.Context) (uint64, error) { return number, nil })
}

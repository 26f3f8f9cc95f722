package ledgertest

import (
	"context"
	"testing"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// Explore is Kind without output, so that a test can expect failures.
func Explore[A, R any](
	t *testing.T, k *ledger.Kind[A, R], args A, call func(ctx context.Context, id ledger.ID) (R, error), service dohosttest.Service,
) (failures []string, summary string) {
	return explore(t, k, args, call, service)
}

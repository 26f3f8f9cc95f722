package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dohost/dohost"
)

// keeper is the only caller of its tenants, and so knows their contents.
type keeper struct {
	*enduring
	host *dohost.Host
	draw *rand.Rand
}

// step makes one operation on a tenant, and counts it.
func (k *keeper) step(ctx context.Context, i int) error {
	want := k.want[i]
	var method func(*tenant, context.Context, int) (holding, error)
	in := 1
	switch n := k.draw.IntN(100); {
	case n < 40:
		method = (*tenant).add
		want.Sum++
	case n < 65 && want.Rows == mostRows:
		method = (*tenant).clear
		want.Rows, want.Versions = 0, [parcels]uint64{}
	case n < 65:
		method = (*tenant).append
		want.Rows++
	case n < 80:
		method = (*tenant).stock
		in = k.draw.IntN(parcels)
		want.Versions[in]++
	default:
		method = (*tenant).look
	}
	began := time.Now()
	err := k.make(ctx, i, want, func(ctx context.Context, s dohost.Stub[tenant]) (holding, error) {
		return dohost.Call(ctx, s, method, in)
	})
	took := time.Since(began)
	k.ops.Add(1)
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(err, record(k.hist, took, 1))
}

// mostTries is the maximum of a keeper's calls of one tenant for one operation, if its incarnations keep ending.
const mostTries = 100

// make makes a call that changes the tenant's contents to want. After an unknown outcome it reads the tenant, and
// repeats the call if it did not run.
func (k *keeper) make(
	ctx context.Context, i int, want holding, call func(context.Context, dohost.Stub[tenant]) (holding, error),
) error {
	s := tenants.Get(k.host, name(i))
	before := k.want[i].kept()
	asking := false
	for range mostTries {
		var got holding
		err := ctx.Err()
		if err != nil {
			return err
		}
		if asking {
			got, err = dohost.Call(ctx, s, (*tenant).look, 0)
		} else {
			got, err = call(ctx, s)
		}
		e, failed := errors.AsType[*dohost.Error](err)
		switch {
		case failed && e.Outcome == dohost.OutcomeNotRun && e.Retryable:
		case failed && e.Outcome == dohost.OutcomeUnknown && errors.Is(err, dohost.ErrFenced):
			if !asking {
				k.lost()
			}
			asking = true
		case err != nil:
			return err
		case got.Rings < k.want[i].Rings:
			return fmt.Errorf("%v has counted %d rings, and had %d before", s.ID(), got.Rings, k.want[i].Rings)
		case got.kept() == want.kept():
			k.want[i] = got
			return nil
		case asking && got.kept() == before:
			asking = false
		default:
			return fmt.Errorf("%v holds %+v, want %+v", s.ID(), got.kept(), want.kept())
		}
	}
	return fmt.Errorf("%v has not answered %d calls", s.ID(), mostTries)
}

// lost counts a call with an unknown outcome.
func (k *keeper) lost() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unknown++
}

// kept is the part that only its keeper changes.
func (h holding) kept() holding {
	h.Rings, h.Due = 0, 0
	return h
}

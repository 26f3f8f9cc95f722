package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dohost/dohost"
)

// enduranceCaller is the only caller of its objects, and so knows their contents.
type enduranceCaller struct {
	*enduranceRun
	host *dohost.Host
	draw *rand.Rand
}

// step makes one operation on an object, and counts it.
func (k *enduranceCaller) step(ctx context.Context, i int) error {
	want := k.want[i]
	var method func(*enduranceObject, context.Context, int) (objectContents, error)
	in := 1
	switch n := k.draw.IntN(100); {
	case n < 40:
		method = (*enduranceObject).add
		want.Sum++
	case n < 65 && want.Rows == maxRows:
		method = (*enduranceObject).clear
		want.Rows, want.Versions = 0, [maxItems]uint64{}
	case n < 65:
		method = (*enduranceObject).append
		want.Rows++
	case n < 80:
		method = (*enduranceObject).putItem
		in = k.draw.IntN(maxItems)
		want.Versions[in]++
	default:
		method = (*enduranceObject).get
	}
	began := time.Now()
	err := k.apply(ctx, i, want, func(ctx context.Context, s dohost.Stub[enduranceObject]) (objectContents, error) {
		return dohost.Call(ctx, s, method, in)
	})
	took := time.Since(began)
	k.ops.Add(1)
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(err, record(k.hist, took, 1))
}

// maxTries is the maximum of a caller's calls of one object for one operation, if its incarnations keep ending.
const maxTries = 100

// apply makes a call that changes the object's contents to want. After an unknown outcome it reads the object, and
// repeats the call if it did not run.
func (k *enduranceCaller) apply(
	ctx context.Context, i int, want objectContents, call func(context.Context, dohost.Stub[enduranceObject]) (objectContents, error),
) error {
	s := enduranceObjects.Get(k.host, name(i))
	before := k.want[i].callerOwned()
	asking := false
	for range maxTries {
		var got objectContents
		err := ctx.Err()
		if err != nil {
			return err
		}
		if asking {
			got, err = dohost.Call(ctx, s, (*enduranceObject).get, 0)
		} else {
			got, err = call(ctx, s)
		}
		e, failed := errors.AsType[*dohost.Error](err)
		switch {
		case failed && e.Outcome == dohost.OutcomeNotRun && e.Retryable:
		case failed && e.Outcome == dohost.OutcomeUnknown && errors.Is(err, dohost.ErrFenced):
			if !asking {
				k.countUnknown()
			}
			asking = true
		case err != nil:
			return err
		case got.Deliveries < k.want[i].Deliveries:
			return fmt.Errorf("%v has counted %d deliveries of its alarm, and had %d before", s.ID(), got.Deliveries, k.want[i].Deliveries)
		case got.callerOwned() == want.callerOwned():
			k.want[i] = got
			return nil
		case asking && got.callerOwned() == before:
			asking = false
		default:
			return fmt.Errorf("%v holds %+v, want %+v", s.ID(), got.callerOwned(), want.callerOwned())
		}
	}
	return fmt.Errorf("%v has not answered %d calls", s.ID(), maxTries)
}

// countUnknown counts a call with an unknown outcome.
func (k *enduranceCaller) countUnknown() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unknown++
}

// callerOwned is the part that only its caller changes.
func (h objectContents) callerOwned() objectContents {
	h.Deliveries, h.Due = 0, 0
	return h
}

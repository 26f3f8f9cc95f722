package agent_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// parcel is a row that counts how often it is decoded.
type parcel struct{ ID string }

var parcelsDecoded atomic.Int64

func (p *parcel) DecodeMsgpack(d *msgpack.Decoder) (err error) {
	parcelsDecoded.Add(1)
	p.ID, err = d.DecodeString()
	return err
}

func (p parcel) EncodeMsgpack(e *msgpack.Encoder) error { return e.EncodeString(p.ID) }

var parcels = dohost.Collection[parcel]{
	Name: "parcels", Key: func(p parcel) string { return p.ID },
	Indexes: []dohost.Index[parcel]{{Name: "all", Of: func(p parcel) dohost.Key { return dohost.KeyOf(p.ID) }}},
}

// depot takes parcels away, in batches.
type depot struct{ *agent.Agent[struct{}] }

const depots dohost.Namespace[depot] = "depot"

// TestOnRowsReadsFewRows lets an agent with 1,000 rows that are work wake, and with the flag -full one with 10,000. Until the first call the agent decodes no more rows than are divided
// into groups, and those of the call; and each row a few times until it is handled.
func TestOnRowsReadsFewRows(t *testing.T) {
	for _, rows := range []int{1_000, 10_000} {
		if pointtest.Case(rows == 1_000) {
			t.Run(fmt.Sprint(rows), func(t *testing.T) { readFewRows(t, rows) })
		}
	}
}

func readFewRows(t *testing.T, rows int) {
	first := int64(-1) // the rows that are decoded before the first call
	take := func(d *depot, ctx context.Context, list []dohost.Row[parcel]) error {
		if first < 0 {
			first = parcelsDecoded.Load()
		}
		for _, row := range list {
			if _, err := parcels.Delete(ctx, d.Storage(), row.Key); err != nil {
				return err
			}
		}
		return nil
	}
	class := agent.Bind(depots, func(_ context.Context, a *agent.Agent[struct{}]) (*depot, error) { return &depot{a}, nil }, nil,
		agent.OnRowGroups(&parcels, "all", func(parcel) string { return "" }, take, nil))
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		insertParcels(t, h, rows)
		parcelsDecoded.Store(0)
		h.Advance(time.Minute)
		if first < 1 || first > 150 {
			t.Errorf("%d rows were decoded before the first call", first)
		}
		if n := parcelsDecoded.Load(); n < int64(rows) || n > 10*int64(rows) {
			t.Errorf("%d rows were decoded for %d", n, rows)
		}
		err := depots.Get(h, "a").Do(t.Context(), func(ctx context.Context, d *depot) error {
			n, err := parcels.Count(ctx, d.Storage(), nil)
			if n > 0 {
				t.Errorf("%d rows are left", n)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
)

// maxPart is the number of bytes of a result that one row has.
const maxPart = 1 << 20

// part is a part of a result that does not fit into the row of its operation. The parts and the row are written and deleted in
// one batch.
type part struct {
	ID     ID
	Number int // from 0
	Data   []byte
}

var resultParts = dohost.Collection[part]{Name: "dohost.operations.results", Key: func(p part) string { return partKey(p.ID, p.Number) }}

func partKey(id ID, number int) string {
	return string(dohost.KeyOf(string(id)) + dohost.KeyOf(uint64(number)))
}

// parts returns the number of rows of the result.
func (r *row) parts() int { return (r.Size + maxPart - 1) / maxPart }

// together calls write, which writes or deletes the row of an operation: in a transaction if it changes several rows, such as the parts
// of the result.
func together(ctx context.Context, several bool, write func(context.Context) error) error {
	if !several {
		return write(ctx)
	}
	return dohost.Transaction(ctx, write)
}

// storeResult sets the result of a row. It writes the parts of a large one: call it together with the write of the row.
func storeResult(ctx context.Context, st *dohost.State, r *row, result json.RawMessage) error {
	r.Result, r.Size = result, 0
	if len(result) <= maxPart {
		return nil
	}
	r.Result, r.Size = result[:maxArgs], len(result)
	for i := range r.parts() {
		data := result[i*maxPart : min((i+1)*maxPart, len(result))]
		if err := resultParts.Put(ctx, st.Storage(), part{r.ID, i, data}); err != nil {
			return err
		}
	}
	return nil
}

// resultOf returns the result of a row.
func resultOf(ctx context.Context, st *dohost.State, r *row) (json.RawMessage, error) {
	if r.Size == 0 {
		return r.Result, nil
	}
	result := make([]byte, 0, r.Size)
	for i := range r.parts() {
		p, ok, err := resultParts.Get(ctx, st.Storage(), partKey(r.ID, i))
		if err == nil && !ok {
			err = fmt.Errorf("ledger: operation %s: part %d of %d of its result is missing", r.ID, i+1, r.parts())
		}
		if err != nil {
			return nil, err
		}
		result = append(result, p.Value.Data...)
	}
	return result, nil
}

// deleteRow deletes a row with its result.
func deleteRow(ctx context.Context, st *dohost.State, r *row) error {
	return together(ctx, r.Size > maxPart, func(ctx context.Context) error {
		for i := range r.parts() {
			if _, err := resultParts.Delete(ctx, st.Storage(), partKey(r.ID, i)); err != nil {
				return err
			}
		}
		_, err := operations.Delete(ctx, st.Storage(), string(r.ID))
		return err
	})
}

// save writes the row of a call that may have had its effect, as soon as there is disk space for that.
func (o *task) save(ctx context.Context) error {
	for {
		err := o.put(ctx)
		if err == nil || !errors.Is(err, dohost.ErrNoSpace) && !errors.Is(err, dohost.ErrOverloaded) {
			return err
		}
		if ended := dohost.Sleep(ctx, time.Second); ended != nil {
			return o.unknownError(errors.Join(err, ended))
		}
	}
}

// put writes the row, and the result if there is one, unless the row was deleted since the last time.
func (o *task) put(ctx context.Context) error {
	err := together(ctx, len(o.result) > maxPart || o.counts != counted{}, func(ctx context.Context) error {
		if o.result != nil {
			if err := storeResult(ctx, o.st, &o.row, o.result); err != nil {
				return err
			}
		}
		if err := count(ctx, o.st, o.kind, o.declared, o.counts); err != nil {
			return err
		}
		return o.putRow(ctx)
	})
	if err != nil {
		return err
	}
	if c := o.counts; c.done+c.notDone > 0 {
		reportResolved(ctx, o.st, o.kind, o.id, o.declared, c.done > 0)
	}
	o.counts = counted{}
	return nil
}

func (o *task) putRow(ctx context.Context) error {
	if o.version == 0 {
		err := operations.Insert(ctx, o.st.Storage(), o.row)
		if err == nil {
			o.version = 1
		}
		return err
	}
	written, err := operations.UpdateIf(ctx, o.st.Storage(), string(o.id), o.version, func(r *row) error {
		*r = o.row
		return nil
	})
	if _, deleted := errors.AsType[*dohost.RowError](err); deleted {
		return o.unknownError(errors.Join(errDeleted, o.storedError()))
	}
	if err == nil {
		o.version = written.Version
	}
	return err
}

// putRow writes the row of an operation without a running call.
func putRow(ctx context.Context, st *dohost.State, r row) error {
	return operations.Put(ctx, st.Storage(), r)
}

// restore restores the row of an operation whose call has not begun.
func (o *task) restore(ctx context.Context, before row, isNew bool) error {
	if !isNew {
		o.row = before
		return o.put(ctx)
	}
	_, err := operations.Delete(ctx, o.st.Storage(), string(o.id))
	return err
}

// deleteExpired deletes at most two expired rows. So an object does not accumulate expired rows, and needs no alarm for that.
func (o *task) deleteExpired(ctx context.Context) error {
	rows, err := operations.List(ctx, o.st.Storage(), &dohost.Query[row]{
		Index: "expires", End: dohost.KeyOf(time.Now().UnixMilli() + 1), Limit: 2,
	})
	for _, r := range rows {
		if err := deleteRow(ctx, o.st, &r.Value); err != nil {
			return err
		}
	}
	return err
}

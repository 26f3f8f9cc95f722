package randwatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/hostof"
	"github.com/dohost/dohost/internal/randtest"
)

// board is an object with notes and generations of chunks. It executes programs.
type board struct {
	st          *dohost.State
	w           *Observer
	incarnation int
	deletions   int // DeleteAlls of this incarnation
}

const boards dohost.Namespace[board] = "random-watch"

// maxNumber is the number of notes of a run that programs write. The loops of watches write them, too.
const maxNumber = 100

// Class returns the class of the object that executes programs.
func Class(w *Observer) dohost.Class {
	return dohost.Bind(boards, func(ctx context.Context, st *dohost.State) (*board, error) {
		b := &board{st: st, w: w}
		m, err := b.read(ctx)
		if err != nil {
			return nil, err
		}
		b.incarnation = w.Wake(m.Serial)
		return b, nil
	}, &dohost.Handlers[board]{OnInspect: inspect})
}

// run executes a program, as one event. It returns the version of the model.
func (b *board) run(ctx context.Context, p Program) (serial int, err error) {
	return p.Run(func(name string, list []Instr) error {
		return (&execution{board: b, name: name}).do(ctx, list)
	}, func() (int, error) {
		m, err := b.load(ctx)
		if err != nil {
			return 0, err
		}
		return m.Serial, nil
	})
}

// execution is the execution of a list of instructions.
type execution struct {
	*board
	name string
}

func (x *execution) do(ctx context.Context, list []Instr) error {
	return randtest.Execute(ctx, &x.w.StoredReport, x.name, list, Instr.control, x.step)
}

// step executes an instruction between two comparisons.
func (x *execution) step(ctx context.Context, name string, in Instr) error {
	x = &execution{board: x.board, name: name}
	m, err := x.load(ctx)
	if err == nil {
		err = x.execute(ctx, m, in)
	}
	if err == nil {
		x.w.Compared()
		_, err = x.load(ctx)
	}
	return err
}

func (x *execution) execute(ctx context.Context, m *model, in Instr) error {
	switch in.Op {
	case Insert, Put, Update, DeleteAll:
		if m.Next >= maxNumber {
			return nil
		}
		return x.change(ctx, m, in)
	case Delete:
		return x.change(ctx, m, in)
	case Stream, Write, TwoWriters, Last:
		return x.chunk(ctx, m, in)
	case Sleep:
		return dohost.Sleep(ctx, time.Duration(in.N)*time.Millisecond)
	case Sync:
		err := x.st.Storage().Sync(ctx)
		if err == nil {
			x.w.Acknowledge(m.Serial)
		}
		return err
	}
	return dohost.Await(ctx, func(context.Context) error { x.w.Acknowledge(m.Serial); return nil })
}

// change changes notes, and the model in the same batch.
func (x *execution) change(ctx context.Context, m *model, in Instr) (err error) {
	s, id := x.st.Storage(), fmt.Sprint("n", in.K)
	old, had := m.Notes[id]
	switch in.Op {
	case Insert:
		n := m.newNote(in.K, in.N)
		if err := notes.Insert(ctx, s, n); had {
			if !errors.Is(err, dohost.ErrConflict) && !randtest.Ended(ctx, err) {
				x.w.Faultf("%s: a second note %s: %v", x.name, id, err)
			}
			if errors.Is(err, dohost.ErrConflict) {
				return nil
			}
			return err
		} else if err != nil {
			return err
		}
		m.Notes[id] = noteAt{n, 1}
	case DeleteAll:
		if err := s.DeleteAll(ctx); err != nil {
			return err
		}
		x.deletions++
		clear(m.Notes)
		clear(m.Streams)
		return x.put(ctx, m, in.K, in.N)
	case Put:
		for i := range 1 + in.N/8%3 {
			if err := x.put(ctx, m, (in.K+i)%8, in.N+i*31); err != nil {
				return err
			}
		}
		return nil
	case Update:
		n := m.newNote(in.K, in.N)
		if !had {
			return nil
		}
		change := func(of *note) error {
			switch in.N % 4 {
			case 0:
				of.Rank = n.Rank
			case 1:
				of.Tags = n.Tags
			case 2:
				of.Hidden = !of.Hidden
			default:
				of.Rank, of.Tags = n.Rank, n.Tags
			}
			of.Number, of.Size = n.Number, n.Size
			*of = of.withText()
			return nil
		}
		_, err = notes.Update(ctx, s, id, change)
		now := noteAt{old.Note, old.Version + 1}
		_ = change(&now.Note)
		m.Notes[id] = now
	case Delete:
		existed, err2 := notes.Delete(ctx, s, id)
		if err = err2; err == nil && existed != had {
			x.w.Faultf("%s: Delete of %s returns %t", x.name, id, existed)
		}
		delete(m.Notes, id)
	}
	if err != nil {
		return err
	}
	return x.save(ctx, m)
}

// put writes a note, also over one that exists.
func (b *board) put(ctx context.Context, m *model, k, n int) error {
	row := m.newNote(k, n)
	if err := notes.Put(ctx, b.st.Storage(), row); err != nil {
		return err
	}
	m.Notes[row.ID] = noteAt{row, m.Notes[row.ID].Version + 1}
	return b.save(ctx, m)
}

// version is the row of the model.
type version struct {
	Serial int
	Model  string // as JSON
}

const modelKey = "model"

var versions = dohost.Collection[version]{Name: "versions", Key: func(version) string { return modelKey }}

// read reads the model.
func (b *board) read(ctx context.Context) (*model, error) {
	m := newModel()
	row, ok, err := versions.Get(ctx, b.st.Storage(), modelKey)
	if err != nil || !ok {
		return m, err
	}
	return m, json.Unmarshal([]byte(row.Value.Model), m)
}

// load reads the model, and compares the object with it.
func (b *board) load(ctx context.Context) (*model, error) {
	m, err := b.read(ctx)
	if err != nil {
		return nil, err
	}
	var found, want []string
	for row, err := range notes.All(ctx, b.st.Storage(), nil) {
		if err != nil {
			return nil, err
		}
		found = append(found, describe(row.Value, row.Version))
	}
	for _, n := range m.Notes {
		want = append(want, n.String())
	}
	slices.Sort(want)
	if slices.Sort(found); !slices.Equal(found, want) {
		b.w.Faultf("the notes are %q, want %q", found, want)
	}
	return m, b.verifyStreams(ctx, m)
}

// save writes a new version of the model, in the batch of the writes that it has in addition.
func (b *board) save(ctx context.Context, m *model) error {
	m.Serial++
	before := m.End
	var err error
	if m.End, err = feed.End(ctx, b.st.Storage()); err != nil {
		return err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	b.w.recordMoment(before, m)
	return errors.Join(b.emit(ctx, m.Serial), versions.Put(ctx, b.st.Storage(), version{m.Serial, string(text)}))
}

// emit records a version of the model once the writes until now are durable.
func (b *board) emit(ctx context.Context, serial int) error {
	return b.st.Emit(ctx, func(err error) {
		if err == nil {
			b.w.emit(serial)
		}
	})
}

// inspect yields the durable version of the model as the ID of an item.
func inspect(_ context.Context, v *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
	return func(yield func(dohost.Resource, error) bool) {
		for row, err := range versions.Scan(v, nil) {
			if !yield(dohost.Resource{Kind: "version", ID: fmt.Sprint(row.Value.Serial)}, err) {
				return
			}
		}
	}
}

// durable returns the version of the model on the disk; zero if there is none.
func (b *board) durable(ctx context.Context) (serial int, err error) {
	for d, err := range hostof.State(b.st).(*dohost.Host).Details(ctx, b.st.ID()) {
		if err != nil {
			return 0, err
		}
		if _, err := fmt.Sscan(d.ID, &serial); err != nil {
			return 0, err
		}
	}
	return serial, nil
}

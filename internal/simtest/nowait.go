package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// noWaitObject is an object that writes hints, without waiting for them, and confirmed values.
type noWaitObject struct {
	st          *dohost.State
	incarnation int // counts the incarnations of the run
}

type writeKind int

const (
	hintOnly writeKind = iota
	confirmed
	synced
)

type noWaitWrite struct {
	K    int // counts ticks from 1
	Kind writeKind
}

var (
	noWaitObjects dohost.Namespace[noWaitObject] = "no-wait"
	noWaitWrites                                 = []writeKind{hintOnly, hintOnly, confirmed, hintOnly, synced, hintOnly, confirmed}
)

// write writes everything in one batch, and returns the number of the incarnation.
func (m *noWaitObject) write(ctx context.Context, t noWaitWrite) (incarnation int, err error) {
	s := m.st.Storage()
	err = errors.Join(
		dohost.PutNoWait(ctx, s, fmt.Sprintf("hint/%d", t.K), m.incarnation),
		dohost.PutNoWait(ctx, s, "last", t.K))
	if err != nil {
		return 0, err
	}
	switch t.Kind {
	case confirmed:
		err = dohost.Put(ctx, s, fmt.Sprintf("sure/%d", t.K), m.incarnation)
	case synced:
		err = s.Sync(ctx)
	}
	return m.incarnation, err
}

// noWaitContents is the content of a noWaitObject: for each write the incarnation that wrote it, or zero.
type noWaitContents struct {
	Last       int
	Hint, Sure []int
}

func (m *noWaitObject) contents(ctx context.Context, _ none) (r noWaitContents, err error) {
	if r.Last, _, err = dohost.Get[int](ctx, m.st.Storage(), "last"); err != nil {
		return r, err
	}
	r.Hint, r.Sure = make([]int, len(noWaitWrites)+1), make([]int, len(noWaitWrites)+1)
	for k := range noWaitWrites {
		hint, _, err := dohost.Get[int](ctx, m.st.Storage(), fmt.Sprintf("hint/%d", k+1))
		sure, _, err2 := dohost.Get[int](ctx, m.st.Storage(), fmt.Sprintf("sure/%d", k+1))
		if err := errors.Join(err, err2); err != nil {
			return r, err
		}
		r.Hint[k+1], r.Sure[k+1] = hint, sure
	}
	return r, nil
}

// noWaitRun has the answers to a client: for each write the incarnation that made it, or zero.
type noWaitRun struct {
	runRecord
	acked []int
}

func (m *noWaitRun) run(ctx context.Context, h *dohosttest.Host) error {
	for i, kind := range noWaitWrites {
		incarnation, err := dohost.Call(ctx, noWaitObjects.Get(h, "a"), (*noWaitObject).write, noWaitWrite{i + 1, kind})
		if err != nil {
			incarnation = 0
			h.Advance(time.Second)
		}
		m.acked = append(m.acked, incarnation)
	}
	return nil
}

func (m *noWaitRun) check(ctx context.Context, h *dohosttest.Host) error {
	r, err := dohost.Call(ctx, noWaitObjects.Get(h, "a"), (*noWaitObject).contents, none{})
	if err != nil {
		return err
	}
	last := 0
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for i, kind := range noWaitWrites {
		k, acked := i+1, m.acked[i]
		if r.Hint[k] > 0 {
			last = k
		}
		if kind == confirmed && r.Sure[k] != r.Hint[k] {
			wrong("tick %d is torn: incarnation %d wrote the hint, incarnation %d the confirmed row", k, r.Hint[k], r.Sure[k])
		}
		if acked == 0 || r.Hint[k] == acked {
			continue
		}
		if r.Hint[k] > 0 {
			wrong("tick %d was made by incarnation %d, its client got %d", k, r.Hint[k], acked)
		}
		switch {
		case kind != hintOnly:
			wrong("tick %d is lost, its client got an answer", k)
		case !m.mayLoseWrites():
			wrong("hint %d is lost, and nothing has crashed", k)
		}
		for later := k + 1; later <= len(noWaitWrites); later++ {
			if r.Hint[later] == acked {
				wrong("hint %d is lost, and %d of the same incarnation is there", k, later)
			}
		}
	}
	return errors.Join(append(problems, differ("the last tick", r.Last, last))...)
}

// newNoWait tests PutNoWait and Sync.
func newNoWait() dohosttest.Scenario {
	m := new(noWaitRun)
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(noWaitObjects, func(_ context.Context, st *dohost.State) (*noWaitObject, error) {
			return &noWaitObject{st, m.count("incarnation")}, nil
		}, nil)},
		Options: dohost.Options{Listener: m.listener()},
		Places:  objectPlaces,
		Batched: true, // a late disk shows other bugs
		Reset:   func() { m.reset(); m.acked = nil },
		Run:     m.run,
		Check:   m.check,
	}
}

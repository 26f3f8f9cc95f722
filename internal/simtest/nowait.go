package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// meter is an object that writes hints, without waiting for them, and confirmed values.
type meter struct {
	st   *dohost.State
	life int // counts the incarnations of the run
}

type tickKind int

const (
	hintOnly tickKind = iota
	confirmed
	synced
)

type tick struct {
	K    int // counts ticks from 1
	Kind tickKind
}

var (
	meters dohost.Namespace[meter] = "meter"
	ticks                          = []tickKind{hintOnly, hintOnly, confirmed, hintOnly, synced, hintOnly, confirmed}
)

// tick writes everything in one batch, and returns the number of the incarnation.
func (m *meter) tick(ctx context.Context, t tick) (life int, err error) {
	s := m.st.Storage()
	err = errors.Join(
		dohost.PutNoWait(ctx, s, fmt.Sprintf("hint/%d", t.K), m.life),
		dohost.PutNoWait(ctx, s, "last", t.K))
	if err != nil {
		return 0, err
	}
	switch t.Kind {
	case confirmed:
		err = dohost.Put(ctx, s, fmt.Sprintf("sure/%d", t.K), m.life)
	case synced:
		err = s.Sync(ctx)
	}
	return m.life, err
}

// reading is the content of a meter: for each tick the incarnation that wrote it, or zero.
type reading struct {
	Last       int
	Hint, Sure []int
}

func (m *meter) reading(ctx context.Context, _ none) (r reading, err error) {
	if r.Last, _, err = dohost.Get[int](ctx, m.st.Storage(), "last"); err != nil {
		return r, err
	}
	r.Hint, r.Sure = make([]int, len(ticks)+1), make([]int, len(ticks)+1)
	for k := range ticks {
		hint, _, err := dohost.Get[int](ctx, m.st.Storage(), fmt.Sprintf("hint/%d", k+1))
		sure, _, err2 := dohost.Get[int](ctx, m.st.Storage(), fmt.Sprintf("sure/%d", k+1))
		if err := errors.Join(err, err2); err != nil {
			return r, err
		}
		r.Hint[k+1], r.Sure[k+1] = hint, sure
	}
	return r, nil
}

// metering has the answers to a client: for each tick the incarnation that made it, or zero.
type metering struct {
	witness
	told []int
}

func (m *metering) run(ctx context.Context, h *dohosttest.Host) error {
	for i, kind := range ticks {
		life, err := dohost.Call(ctx, meters.Get(h, "a"), (*meter).tick, tick{i + 1, kind})
		if err != nil {
			life = 0
			h.Advance(time.Second)
		}
		m.told = append(m.told, life)
	}
	return nil
}

func (m *metering) check(ctx context.Context, h *dohosttest.Host) error {
	r, err := dohost.Call(ctx, meters.Get(h, "a"), (*meter).reading, none{})
	if err != nil {
		return err
	}
	last := 0
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for i, kind := range ticks {
		k, told := i+1, m.told[i]
		if r.Hint[k] > 0 {
			last = k
		}
		if kind == confirmed && r.Sure[k] != r.Hint[k] {
			wrong("tick %d is torn: life %d wrote the hint, %d what was confirmed", k, r.Hint[k], r.Sure[k])
		}
		if told == 0 || r.Hint[k] == told {
			continue
		}
		if r.Hint[k] > 0 {
			wrong("tick %d was made by life %d, its client was told %d", k, r.Hint[k], told)
		}
		switch {
		case kind != hintOnly:
			wrong("tick %d is lost, its client was told that it was safe", k)
		case !m.mayDrop():
			wrong("hint %d is lost, and nothing has crashed", k)
		}
		for later := k + 1; later <= len(ticks); later++ {
			if r.Hint[later] == told {
				wrong("hint %d is lost, and %d of the same life is there", k, later)
			}
		}
	}
	return errors.Join(append(problems, differ("the last tick", r.Last, last))...)
}

// newMetering tests PutNoWait and Sync.
func newMetering() dohosttest.Scenario {
	m := new(metering)
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(meters, func(_ context.Context, st *dohost.State) (*meter, error) {
			return &meter{st, m.see("life")}, nil
		}, nil)},
		Options: dohost.Options{Listener: m.listener()},
		Places:  turns,
		Reset:   func() { m.reset(); m.told = nil },
		Run:     m.run,
		Check:   m.check,
	}
}

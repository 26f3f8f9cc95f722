package dohosttest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dohost/dohost"
)

// register is an object that is read more often than it is written.
type register struct{ st *dohost.State }

var registers dohost.Namespace[register] = "register"

func (r *register) Read(ctx context.Context, _ int) (int, error) {
	n, _, err := dohost.Get[int](ctx, r.st.Storage(), "n")
	return n, err
}

func (r *register) Write(ctx context.Context, n int) (int, error) {
	return n, dohost.Put(ctx, r.st.Storage(), "n", n)
}

// access is a call of a register: a write, unless n is zero.
type access struct {
	Name string
	N    int
}

// reading is a workload of registers in a shared log.
func reading() *Workload[int, access, int] {
	return &Workload[int, access, int]{
		Classes: []dohost.Class{dohost.Bind(registers, func(_ context.Context, st *dohost.State) (*register, error) {
			return &register{st}, nil
		}, nil)},
		Model: Model[int, access, int]{Init: func() int { return 0 }, Step: func(s int, in access) (int, int) {
			if in.N > 0 {
				s = in.N
			}
			return s, s
		}},
		Object: func(in access) string { return in.Name },
		Draw: func(r *rand.Rand) access {
			return access{[]string{"a", "b"}[r.IntN(2)], max(0, r.IntN(200)-100)}
		},
		Do: func(ctx context.Context, h *Host, in access) (int, error) {
			if in.N > 0 {
				return dohost.Call(ctx, registers.Get(h, in.Name), (*register).Write, in.N)
			}
			return dohost.Call(ctx, registers.Get(h, in.Name), (*register).Read, 0)
		},
		SharedLog: true,
		Chance:    0.03,
		Runs:      60,
	}
}

// TestLinearizableAcrossTakeOvers merges the answers of former owners and of their successors.
func TestLinearizableAcrossTakeOvers(t *testing.T) {
	x := reading().untyped()
	v := x.search(t)
	if v.err != nil {
		t.Fatal(v.text(t.Name(), t.ArtifactDir()))
	}
	if n := v.endings[dohost.EndTakeOver]; n < 20 {
		t.Errorf("only %d take-overs in %d histories", n, v.runs)
	}
	t.Log(v.summary())
}

// TestSimulateWithSharedLog counts in a register, with all endings and faults of a shared log.
func TestSimulateWithSharedLog(t *testing.T) {
	confirmed := 0
	s := Simulation{
		Scenario: Scenario{
			Classes: reading().Classes,
			Reset:   func() { confirmed = 0 },
			Check: func(ctx context.Context, h *Host) error {
				n, err := dohost.Call(ctx, registers.Get(h, "a"), (*register).Read, 0)
				if n < confirmed {
					return fmt.Errorf("the register has %d, although %d was confirmed", n, confirmed)
				}
				return err
			},
			SharedLog: true, Seed: 1,
		},
		Ops: []Op{{Name: "write", Do: func(ctx context.Context, h *Host, r *rand.Rand) error {
			next := confirmed + 1
			_, err := dohost.Call(ctx, registers.Get(h, "a"), (*register).Write, next)
			if err == nil {
				confirmed = max(confirmed, next)
			}
			return err
		}}},
		Clients: 1, Runs: 30, Faults: 0.2,
	}
	Simulate(t, s)
}

// TestTakeOversCrossBases ends runs at every point, the steps of bases and purges among them.
func TestTakeOversCrossBases(t *testing.T) {
	var runs, bases, cut int
	confirmed := 0
	EveryPoint(t, Scenario{
		Classes: reading().Classes,
		Run: func(ctx context.Context, h *Host) error {
			for n := range 8 {
				_, err := dohost.Call(ctx, registers.Get(h, "a"), (*register).Write, n+1)
				if err == nil {
					confirmed = n + 1
				} else if !byEnding(err) {
					return err
				}
			}
			return nil
		},
		Check: func(ctx context.Context, h *Host) error {
			runs++
			if base, _ := h.run.shared.Base(); base > 0 {
				bases++
			}
			if first := h.run.shared.Records()[0]; binary.BigEndian.Uint64(first[37:]) > 1 { // the number of a frame
				cut++
			}
			n, err := dohost.Call(ctx, registers.Get(h, "a"), (*register).Read, 0)
			if n < confirmed {
				return fmt.Errorf("the register has %d, although %d was confirmed", n, confirmed)
			}
			return err
		},
		Reset:     func() { confirmed = 0 },
		SharedLog: true, Batched: true,
	})
	if *replayFlag == "" && (runs < 100 || bases < runs/2 || cut < runs/2) {
		t.Errorf("%d of %d checks had a base, and %d a log that was cut", bases, runs, cut)
	}
}

// TestHostTakeOver takes a host over twice, and lets a lease expire.
func TestHostTakeOver(t *testing.T) {
	Run(t, &Options{Classes: reading().Classes, SharedLog: true}, func(t *testing.T, h *Host) {
		ctx := t.Context()
		write := func(n int) {
			t.Helper()
			if _, err := dohost.Call(ctx, registers.Get(h, "a"), (*register).Write, n); err != nil {
				t.Fatal(err)
			}
		}
		for n := range 3 {
			write(n + 1)
			former := h.Host()
			if n == 2 {
				h.ExpireLease()
				if err := h.Restart(); !errors.Is(err, dohost.ErrFenced) {
					t.Errorf("the host without a lease has closed with %v", err)
				}
			} else {
				h.TakeOver()
			}
			read, err := dohost.Call(ctx, registers.Get(h, "a"), (*register).Read, 0)
			if err != nil || read != n+1 {
				t.Errorf("the next host reads %d, %v", read, err)
			}
			if _, err := dohost.Call(ctx, registers.Get(former, "a"), (*register).Read, 0); !byEnding(err) {
				t.Errorf("the former owner answers with %v", err)
			}
		}
	})
}

func TestEndTakeOverNeedsSharedLog(t *testing.T) {
	s := doing(put)
	s.Endings = []dohost.EndMode{dohost.EndTakeOver}
	if err := s.check(); err == nil {
		t.Error("a scenario without a shared log may end by a take-over")
	}
	if s.SharedLog = true; s.check() != nil {
		t.Error(s.check())
	}
}

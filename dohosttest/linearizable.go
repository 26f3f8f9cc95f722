package dohosttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
)

// Model says what objects must look like from outside: as if calls took effect one
// after another, each at one moment between its call and its answer.
type Model[S, In, Out any] struct {
	// Init returns the state before the first call.
	Init func() S
	// Step says what a call answers in a state, and what it leaves. It must not change the
	// state that it is given, so copy maps and slices, and must say the same each time.
	// A call whose caller was not told what came of it is tried at every later moment.
	Step func(s S, in In) (next S, out Out)
	// Equal compares states. Nil means reflect.DeepEqual.
	Equal func(a, b S) bool
	// Same says whether an answer is as good as the one that Step wants. Nil means
	// reflect.DeepEqual, to which a nil slice is another than an empty one.
	Same func(want, got Out) bool
}

// Workload is calls that clients make, and the [Model] that their answers must fit. It
// is run many times, so nothing may be left of a run: what Do shares with the classes is
// among Services, or is made anew by Reset. Calls, answers and states are printed by %v.
type Workload[S, In, Out any] struct {
	// Classes are those of the objects.
	Classes []dohost.Class
	// Model is the model of all objects together or, if Object is set, of each of them.
	Model Model[S, In, Out]
	// Draw makes a call from r alone.
	Draw func(r *rand.Rand) In
	// Do makes the call. ctx ends when the run is given up. What a method returned as an
	// error (Ran is [dohost.RanYes]) is an answer: Do says so in Out. A [dohost.Error] is
	// returned as it is: with [dohost.RanNo] the call is left out of the history, with
	// [dohost.RanUnknown] it may have taken effect, or may yet. The same goes for an error
	// by which a method says that an object which it called has ended. Every other error
	// is a failure; so is an end by the object's own fault: a panic, an abort, a constructor
	// that fails. What is meant to end so, Do says in Out.
	//
	// Do makes one call, and may retry what did not run, as [dohost.Retry] does unless it is
	// told that fn is idempotent: then the last error may hide that an earlier attempt ran.
	Do func(ctx context.Context, h *Host, in In) (Out, error)
	// Object names the object that a call is about. Then the calls of each are checked by
	// themselves, which is faster by far. Nil means that all calls are about one, or that
	// some are about several.
	Object func(in In) string
	// Services are the doubles that begin anew with every run.
	Services []*Service
	// Reset, if set, is called before every run.
	Reset func()
	// Options are those of the host. FS and Chaos are the test's.
	Options dohost.Options
	// Settle, if set, is the time after the clients that objects are given whose alarms
	// never end. Else all must come to rest within a day.
	Settle time.Duration
	// Clients is how many make calls at the same time. Zero means 4.
	Clients int
	// Calls is how many each of them makes, one after the other. When all is at rest, one
	// client more makes as many, undisturbed, to incarnations that know only what the store
	// has. Zero means 8.
	Calls int
	// Runs is how many histories are made. Zero means 100.
	Runs int
	// Seed draws the first of them; the next has Seed+1.
	Seed uint64
	// Chance is that of an ending at each point, above 0 and at most 1. Zero means 0.01.
	Chance float64
	// Ways are those in which it ends. Nil means all.
	Ways []Way
	// Patience is how long the check of one history may take, by the real clock, and how
	// long a shorter one is looked for than one that failed. Zero means 20 s.
	Patience time.Duration
}

// Linearizable makes histories: clients call objects while incarnations are fenced,
// objects crash, and the process is cut off or killed and starts again, all of it and
// the order of things drawn from a seed. Of each it asks whether some order of the calls,
// one after another, explains all answers.
//
// It fails t with the shortest history it finds that has no such order, as a table and
// as a picture in t.ArtifactDir, and with a line that replays just that. It also fails
// if it would pass whatever the objects do: if nothing was ended, no calls of one object
// overlapped, no call or only one answer came; and if two runs of one seed differ.
//
// The check takes time exponential in the calls that overlap and in those whose callers
// were not told what came of them, so have many short runs, and some objects. Run one
// Linearizable in a test: the line names the test.
func Linearizable[S, In, Out any](t *testing.T, w Workload[S, In, Out]) {
	t.Helper()
	x := w.untyped()
	if err := x.check(); err != nil {
		t.Fatal(err)
	}
	if *replayFlag != "" {
		x.replay(t, *replayFlag)
		return
	}
	v := x.search(t)
	if v.err != nil {
		t.Error(v.text(t.Name(), t.ArtifactDir()))
	}
	t.Log(v.summary())
}

// workload is a Workload without its types.
type workload struct {
	classes  []dohost.Class
	options  dohost.Options
	services []*Service
	reset    func()
	settle   time.Duration

	init   func() any
	step   func(s, in any) (next, out any)
	equal  func(a, b any) bool
	same   func(want, got any) bool
	draw   func(r *rand.Rand) any
	do     func(ctx context.Context, h *Host, in any) (any, error)
	object func(in any) string

	clients, calls, runs int
	seed                 uint64
	chance               float64
	ways                 []Way
	patience             time.Duration

	missing []string // what a Workload must have, and this has not
}

// as is v as a T, also where T is an interface and v is nil.
func as[T any](v any) T {
	t, _ := v.(T)
	return t
}

// untyped fills in defaults, and hides types.
func (w *Workload[S, In, Out]) untyped() *workload {
	x := &workload{
		classes: w.Classes, options: w.Options, services: w.Services, reset: w.Reset, settle: w.Settle,
		clients: w.Clients, calls: w.Calls, runs: w.Runs, seed: w.Seed, chance: w.Chance, ways: w.Ways, patience: w.Patience,
		init:   func() any { return w.Model.Init() },
		step:   func(s, in any) (any, any) { return w.Model.Step(as[S](s), as[In](in)) },
		equal:  reflect.DeepEqual,
		same:   reflect.DeepEqual,
		draw:   func(r *rand.Rand) any { return w.Draw(r) },
		do:     func(ctx context.Context, h *Host, in any) (any, error) { return w.Do(ctx, h, as[In](in)) },
		object: func(any) string { return "" },
	}
	for name, is := range map[string]bool{
		"Classes": len(w.Classes) > 0, "Model.Init": w.Model.Init != nil, "Model.Step": w.Model.Step != nil,
		"Draw": w.Draw != nil, "Do": w.Do != nil,
	} {
		if !is {
			x.missing = append(x.missing, name)
		}
	}
	if w.Model.Equal != nil {
		x.equal = func(a, b any) bool { return w.Model.Equal(as[S](a), as[S](b)) }
	}
	if w.Model.Same != nil {
		x.same = func(want, got any) bool { return w.Model.Same(as[Out](want), as[Out](got)) }
	}
	if w.Object != nil {
		x.object = func(in any) string { return w.Object(as[In](in)) }
	}
	x.fill()
	return x
}

// fill fills in defaults.
func (x *workload) fill() {
	x.clients, x.calls, x.runs = cmp.Or(x.clients, 4), cmp.Or(x.calls, 8), cmp.Or(x.runs, 100)
	x.chance, x.patience = cmp.Or(x.chance, 0.01), cmp.Or(x.patience, 20*time.Second)
	if x.ways == nil {
		x.ways = []Way{Fence, Crash, PowerCut, Kill}
	}
}

func (x *workload) check() error {
	switch {
	case len(x.missing) > 0:
		slices.Sort(x.missing)
		return fmt.Errorf("the workload has no %s", strings.Join(x.missing, ", "))
	case x.clients < 0 || x.calls < 0 || x.runs < 0 || x.patience < 0:
		return errors.New("the workload has less than no Clients, Calls, Runs or Patience")
	case !(x.chance > 0 && x.chance <= 1):
		return fmt.Errorf("the workload's Chance is %v: want above 0, and at most 1", x.chance)
	case len(x.ways) == 0:
		return errors.New("the workload has no Ways")
	}
	for _, way := range x.ways {
		if way <= None || way > Kill {
			return fmt.Errorf("the workload's Ways have %d, which is none", way)
		}
	}
	return nil
}

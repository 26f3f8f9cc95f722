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

// Model specifies the behaviour of objects as seen from outside: as if calls took effect
// one after another, each at one moment between its call and its answer.
type Model[S, In, Out any] struct {
	// Init returns the state before the first call.
	Init func() S
	// Step returns the answer of a call in a state, and the next state. It must not change
	// s, so copy maps and slices, and must return the same result each time. A call with an
	// unknown result is tried at every later moment.
	Step func(s S, in In) (next S, out Out)
	// Equal compares states. Nil means reflect.DeepEqual.
	Equal func(a, b S) bool
	// Same reports whether an answer is as good as the one that Step returns. Nil means
	// reflect.DeepEqual, which distinguishes a nil slice from an empty one.
	Same func(want, got Out) bool
}

// Workload is a set of calls by clients, and the [Model] that their answers must fit. It
// runs many times, so a run must leave nothing: state that Do shares with the classes is
// among Services, or Reset restores it. Calls, answers and states are printed by %v.
type Workload[S, In, Out any] struct {
	// Classes are the classes of the objects. Required.
	Classes []dohost.Class
	// Model is the model of all objects together or, if Object is set, of each of them. Its Init and Step are required.
	Model Model[S, In, Out]
	// Draw makes a call from r alone. Required.
	Draw func(r *rand.Rand) In
	// Do makes the call. Required. ctx ends when the run is given up. An error that a method returned ([dohost.OutcomeRan]) is an
	// answer: Do returns it in Out. Do returns a [dohost.Error] unchanged: with [dohost.OutcomeNotRun] the call is omitted
	// from the history, with [dohost.OutcomeUnknown] it may have taken effect, or may yet do so. The same applies to an
	// error of a method that called another object if that object has ended. Every other error is a failure; so is an end
	// by the object's own fault: a panic, an abort, a constructor that fails. If an object is meant to end so, Do returns
	// that in Out.
	//
	// Do makes one call, and may retry a call that did not run, as [dohost.Retry] does without
	// a ShouldRetry: with one the last error may hide that an earlier attempt ran.
	Do func(ctx context.Context, h *Host, in In) (Out, error)
	// Object names the object of a call. Then the calls of each object are checked
	// separately, which is much faster. Nil means that all calls are for one object, or
	// that some concern several.
	Object func(in In) string
	// Services are doubles that start empty in every run.
	Services []*FakeService
	// Reset, if set, is called before every run.
	Reset func()
	// Options are the host's options. The test sets Chaos and keeps the store in memory.
	Options dohost.Options
	// SettleTime, if set, is how long the run lasts after the clients, for objects with alarms
	// that never end. Otherwise all must come to rest within a day.
	SettleTime time.Duration
	// Clients is how many make calls concurrently. Zero means 4. The calls of a single client are a random program, which
	// is compared with the model step by step. It may be long: calls overlap only if an outcome is unknown.
	Clients int
	// Calls is the number of calls of each client, one after the other. When everything is idle, one more client makes
	// the same number of calls, undisturbed, to incarnations that know only the store.
	// Zero means 8.
	Calls int
	// Runs is the number of histories. Zero means 100.
	Runs int
	// Seed draws the first of them; the next has Seed+1.
	Seed uint64
	// Chance is the probability of an ending at each point, above 0 and at most 1. Zero means 0.01.
	Chance float64
	// Endings are the modes of these endings, as in [Scenario]. Nil means all.
	Endings []dohost.EndMode
	// SharedLog keeps the history of the store in a shared log, as in [Scenario].
	SharedLog bool
	// CheckTimeout is the limit, by the real clock, for the check of one history, and for the
	// search for a shorter history than one that failed. Zero means 20 s.
	CheckTimeout time.Duration
}

// Linearizable makes histories: clients call objects while incarnations are fenced, objects
// crash, and the process is cut off or killed and starts again. A seed draws all of that,
// and the order of the steps. For each history it checks whether some order of the calls,
// one after another, explains all answers.
//
// It fails t with the shortest history it finds that has no such order, as a table and as a
// picture in t.ArtifactDir, and with a line that replays only that history. It also fails
// if it would pass for any behaviour of the objects: if nothing was ended, no call or only
// one answer came, or no calls of one object overlapped although there are several clients;
// and if two runs of one seed differ.
//
// The time of the check is exponential in the number of overlapping calls and of calls with
// an unknown result, so use many short runs, and several objects; runs of one client may be
// long. Run one Linearizable in a test: the line names the test.
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
	classes    []dohost.Class
	options    dohost.Options
	services   []*FakeService
	reset      func()
	settleTime time.Duration

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
	kinds                []dohost.EndMode
	sharedLog            bool
	checkTimeout         time.Duration

	missing []string // required fields that this Workload does not set
}

// as returns v as a T, also if T is an interface and v is nil.
func as[T any](v any) T {
	t, _ := v.(T)
	return t
}

// untyped sets defaults, and hides types.
func (w *Workload[S, In, Out]) untyped() *workload {
	x := &workload{
		classes: w.Classes, options: w.Options, services: w.Services, reset: w.Reset, settleTime: w.SettleTime,
		clients: w.Clients, calls: w.Calls, runs: w.Runs, seed: w.Seed, chance: w.Chance, sharedLog: w.SharedLog, kinds: w.Endings, checkTimeout: w.CheckTimeout,
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

// fill sets defaults.
func (x *workload) fill() {
	x.clients, x.calls, x.runs = cmp.Or(x.clients, 4), cmp.Or(x.calls, 8), cmp.Or(x.runs, 100)
	x.chance, x.checkTimeout = cmp.Or(x.chance, 0.01), cmp.Or(x.checkTimeout, 20*time.Second)
	x.kinds = endings(x.kinds, x.sharedLog)
}

func (x *workload) check() error {
	switch {
	case len(x.missing) > 0:
		slices.Sort(x.missing)
		return fmt.Errorf("the workload has no %s", strings.Join(x.missing, ", "))
	case x.clients < 0 || x.calls < 0 || x.runs < 0 || x.checkTimeout < 0:
		return errors.New("the workload has negative Clients, Calls, Runs or CheckTimeout")
	case !(x.chance > 0 && x.chance <= 1):
		return fmt.Errorf("the workload's Chance is %v: want above 0, and at most 1", x.chance)
	case len(x.kinds) == 0:
		return errors.New("the workload has no Endings")
	}
	return checkEndings("workload", x.kinds, x.sharedLog)
}

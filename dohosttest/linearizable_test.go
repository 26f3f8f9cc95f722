package dohosttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
)

// sum is an object that counts, in one of several manners.
type sum struct {
	st    *dohost.State
	m     manner
	cache map[string]int // survives incarnations and processes
}

const sums dohost.Namespace[sum] = "sum"

// manner is how a sum counts; only the first two are right.
type manner int

const (
	immediate manner = iota
	exclusive
	losesUpdates // gives up the turn between reading and writing
	answersEarly // answers before its writes are durable
	staleCache   // reads from memory that survives the incarnation
	sharesNumber // all objects have one number, which none of them writes
	failing      // returns an error
	unknownError // returns an error that Do does not understand
)

// add is a call: to the object name, with the number n. Zero reads.
type add struct {
	name string
	n    int
}

func (a add) String() string { return fmt.Sprintf("%s+%d", a.name, a.n) }

func (s *sum) Add(ctx context.Context, n int) (int, error) {
	switch s.m {
	case failing:
		return 0, errors.New("out of paper")
	case sharesNumber:
		s.cache["all"] += n
		return s.cache["all"], nil
	case staleCache:
		if old, ok := s.cache[s.st.ID().Name]; ok && n == 0 {
			return old, nil
		}
	case exclusive:
		total := 0
		err := dohost.Exclusive(ctx, func(ctx context.Context) (err error) {
			total, err = s.add(ctx, n)
			return err
		})
		return total, err
	}
	return s.add(ctx, n)
}

func (s *sum) add(ctx context.Context, n int) (int, error) {
	total, _, err := dohost.Get[int](ctx, s.st.Storage(), "n")
	if err != nil {
		return 0, err
	}
	if s.m == losesUpdates || s.m == exclusive {
		if err := dohost.Sleep(ctx, time.Microsecond); err != nil {
			return 0, err
		}
	}
	total += n
	s.cache[s.st.ID().Name] = total
	if s.m == answersEarly {
		return total, dohost.PutNoWait(ctx, s.st.Storage(), "n", total)
	}
	return total, dohost.Put(ctx, s.st.Storage(), "n", total)
}

// counting is a workload of two sums.
func counting(m manner) *Workload[int, add, int] {
	cache := map[string]int{}
	return &Workload[int, add, int]{
		CheckTimeout: 10 * time.Minute, // a slow machine must not stop a search early
		Classes: []dohost.Class{dohost.Bind(sums, func(_ context.Context, st *dohost.State) (*sum, error) {
			return &sum{st, m, cache}, nil
		}, nil)},
		Reset:  func() { clear(cache) },
		Model:  Model[int, add, int]{Init: func() int { return 0 }, Step: func(s int, in add) (int, int) { return s + in.n, s + in.n }},
		Object: func(in add) string { return in.name },
		Draw:   func(r *rand.Rand) add { return add{[]string{"a", "b"}[r.IntN(2)], r.IntN(3)} },
		Do: func(ctx context.Context, h *Host, in add) (int, error) {
			n, err := dohost.Call(ctx, sums.Get(h, in.name), (*sum).Add, in.n)
			if m == unknownError {
				err = errors.New("never mind")
			}
			return n, err
		},
		Runs: rounds(60),
	}
}

// searching returns the result of a workload, and its text.
func searching[S, In, Out any](t *testing.T, w *Workload[S, In, Out]) (*linearizableResult, string) {
	t.Helper()
	v := w.untyped().search(t)
	if v.err == nil {
		t.Fatalf("it passes: %s", v.summary())
	}
	text := v.text(t.Name(), t.ArtifactDir())
	if testing.Verbose() {
		t.Log(text)
	}
	return v, text
}

func TestLinearizablePassesCorrectObject(t *testing.T) {
	Linearizable(t, *counting(immediate))
}

func TestLinearizablePassesExclusiveObject(t *testing.T) {
	Linearizable(t, *counting(exclusive))
}

func TestLinearizableFindsBrokenObjects(t *testing.T) {
	for name, c := range map[string]struct {
		m       manner
		calls   int  // at most, of the shortest history
		endings bool // the shortest history needs one
	}{
		"updates are lost":               {losesUpdates, 3, false},
		"answers are not durable":        {answersEarly, 4, true},
		"a cache outlives its object":    {staleCache, 4, true},
		"objects share what they should": {sharesNumber, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			v, text := searching(t, counting(c.m))
			if !errors.Is(v.err, errNoOrder) {
				t.Fatal(v.err)
			}
			if n := len(v.bad.operations()); n > c.calls {
				t.Errorf("%d calls are left, want %d", n, c.calls)
			}
			if got := len(v.bad.run.endings) > 0; got != c.endings {
				t.Errorf("%d endings are left", len(v.bad.run.endings))
			}
			for _, want := range []string{`seed \d+: no order`, `(?m)^ +\d+m?s .* calls [ab]\+\d$`, `the model returns \d`, `history\.html`, `replay: go test .*seed:\d+,clients:\d,calls:\d`} {
				if !regexp.MustCompile(want).MatchString(text) {
					t.Errorf("no %s in:\n%s", want, text)
				}
			}
			if c.endings != strings.Contains(text, " of sum/") {
				t.Errorf("endings are not told:\n%s", text)
			}
			picture := regexp.MustCompile(`picture: (\S+)`).FindStringSubmatch(text)
			html, err := os.ReadFile(picture[1])
			if err != nil || !strings.Contains(string(html), "<html") || c.endings != strings.Contains(string(html), "at the place") {
				t.Errorf("the picture: %v", err)
			}
			p, err := v.x.parseSubHistory(v.bad.sub.String())
			if err != nil {
				t.Fatal(err)
			}
			again := v.x.try(t, p)
			if err := differAt(v.bad, again); err != nil || !errors.Is(again.verify(), errNoOrder) {
				t.Errorf("the line replays something else: %v, %v", err, again.verify())
			}
		})
	}
}

// TestLinearizableOfOneClient runs random programs of 100 calls.
func TestLinearizableOfOneClient(t *testing.T) {
	programs := func(m manner) *Workload[int, add, int] {
		w := counting(m)
		w.Clients, w.Calls, w.Runs = 1, 100, rounds(20)
		return w
	}
	Linearizable(t, *programs(immediate))
	for name, m := range map[string]manner{"answers are not durable": answersEarly, "a cache outlives its object": staleCache} {
		t.Run(name, func(t *testing.T) {
			v, text := searching(t, programs(m))
			if n := len(v.bad.operations()); !errors.Is(v.err, errNoOrder) || n > 6 || !strings.Contains(text, "clients:1,") {
				t.Errorf("%d calls are left: %v\n%s", n, v.err, text)
			}
		})
	}
}

// Workloads that would pass by accident, or cannot be checked, fail with a reason.
func TestLinearizableRejectsVacuousWorkloads(t *testing.T) {
	noise := 0
	for name, c := range map[string]struct {
		change func(w *Workload[int, add, int])
		want   string
	}{
		"nothing ends":     {func(w *Workload[int, add, int]) { w.Chance = 1e-9 }, fmt.Sprintf("none of %d runs was interrupted", rounds(60))},
		"an object each":   {func(w *Workload[int, add, int]) { w.Draw = strangers }, "no two calls of one object overlapped"},
		"one answer":       {func(w *Workload[int, add, int]) { w.Draw = nothing }, "every answer was 0"},
		"no constructor":   {func(w *Workload[int, add, int]) { w.Classes = noSums() }, "the object ended its own incarnation; if that is intended, Do must return it in Out: dohost: Add sum/"},
		"no answer":        {func(w *Workload[int, add, int]) { w.Do = never }, "it has no answer, although interruptions have stopped: "},
		"no host":          {func(w *Workload[int, add, int]) { w.Do, w.Draw = nowhere, nothing }, "was interrupted"},
		"a method's error": {func(w *Workload[int, add, int]) { w.Classes = counting(failing).Classes }, "Do must return it in Out: "},
		"another error":    {func(w *Workload[int, add, int]) { w.Do = counting(unknownError).Do }, "never mind"},
		"a panic": {func(w *Workload[int, add, int]) {
			w.Do = func(context.Context, *Host, add) (int, error) { panic("oh") }
		}, "panic: oh"},
		"a moody Step": {func(w *Workload[int, add, int]) {
			w.Model.Step = func(s int, _ add) (int, int) { noise++; return noise, s }
		}, "Model.Step has two results"},
		"a Draw with memory":  {func(w *Workload[int, add, int]) { w.Draw = func(*rand.Rand) add { noise++; return add{"a", noise} } }, "not deterministic"},
		"a cache never reset": {func(w *Workload[int, add, int]) { *w = *counting(staleCache); w.Reset = nil }, "not deterministic"},
		"a check without end": {func(w *Workload[int, add, int]) { w.CheckTimeout = 1 }, "no verdict on a history of"},
	} {
		t.Run(name, func(t *testing.T) {
			w := counting(immediate)
			c.change(w)
			if _, text := searching(t, w); !strings.Contains(text, c.want) {
				t.Errorf("want %q in:\n%s", c.want, text)
			}
		})
	}
}

// strangers draws calls; no two are for the same object.
func strangers(r *rand.Rand) add { return add{fmt.Sprint(r.Uint64()), r.IntN(3)} }

func nothing(*rand.Rand) add { return add{"a", 0} }

func nowhere(_ context.Context, _ *Host, in add) (int, error) { return in.n, nil }

func never(context.Context, *Host, add) (int, error) {
	return 0, &dohost.Error{Outcome: dohost.OutcomeNotRun, Err: errors.New("not today")}
}

// noSums is a class with a constructor that always fails.
func noSums() []dohost.Class {
	return []dohost.Class{dohost.Bind(sums, func(context.Context, *dohost.State) (*sum, error) {
		return nil, errors.New("no sum today")
	}, nil)}
}

// A history without a valid order is reported unshortened if it cannot be repeated.
func TestLinearizableReportsUnrepeatableFailure(t *testing.T) {
	w := counting(sharesNumber)
	w.Reset = nil
	v, text := searching(t, w)
	if !errors.Is(v.err, errNoOrder) || !v.bad.sub.all || !strings.Contains(text, "not shortened, and it may not be reproducible") {
		t.Error(text)
	}
}

func TestModelStepMustNotChangeItsState(t *testing.T) {
	w := &Workload[map[string]int, add, int]{
		Classes: counting(immediate).Classes, Draw: counting(immediate).Draw, Do: counting(immediate).Do,
		Model: Model[map[string]int, add, int]{
			Init: func() map[string]int { return map[string]int{} },
			Step: func(s map[string]int, in add) (map[string]int, int) {
				s[in.name] += in.n
				return s, s[in.name]
			},
		},
	}
	if _, text := searching(t, w); !strings.Contains(text, "Model.Step modifies its argument") {
		t.Error(text)
	}
}

func TestWorkloadIsChecked(t *testing.T) {
	type w = Workload[int, add, int]
	for want, change := range map[string]func(*w){
		"no Classes, Do":       func(w *w) { w.Classes, w.Do = nil, nil },
		"no Draw":              func(w *w) { w.Draw = nil },
		"no Model.Init":        func(w *w) { w.Model.Init = nil },
		"no Model.Step":        func(w *w) { w.Model.Step = nil },
		"has negative Clients": func(w *w) { w.Runs = -1 },
		"Chance is 2":          func(w *w) { w.Chance = 2 },
		"Chance is NaN":        func(w *w) { w.Chance /= w.Chance },
		"no Endings":           func(w *w) { w.Endings = []dohost.EndMode{} },
		"Endings contain none": func(w *w) { w.Endings = []dohost.EndMode{eviction.EndFence, eviction.EndNone} },
	} {
		w := counting(immediate)
		change(w)
		if err := w.untyped().check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := counting(immediate).untyped().check(); err != nil {
		t.Error(err)
	}
}

// Same seed, same history, on one core or on many.
func TestLinearizableSameSeedSameHistory(t *testing.T) {
	for _, m := range []manner{immediate, exclusive, losesUpdates} {
		for seed := range uint64(rounds(8)) {
			x := counting(m).untyped()
			x.chance = 0.03
			many := x.try(t, x.fullHistory(seed))
			procs := runtime.GOMAXPROCS(1)
			one := x.try(t, x.fullHistory(seed))
			runtime.GOMAXPROCS(procs)
			if err := differAt(many, one); err != nil {
				t.Fatal(err)
			}
			if many.err != nil || many.table() != one.table() {
				t.Fatalf("%v\n%s\n%s", many.err, many.table(), one.table())
			}
			if other := x.try(t, x.fullHistory(seed+100)); differAt(many, other) == nil {
				t.Errorf("seeds %d and %d make the same history", seed, seed+100)
			}
		}
	}
}

// The last client gets new incarnations, and no more endings.
func TestLinearizableLastClientIsUndisturbed(t *testing.T) {
	x := counting(immediate).untyped()
	x.chance = 1e-9
	h := x.try(t, x.fullHistory(1))
	if h.err != nil || h.run.incarnations != 4 {
		t.Errorf("%v; 2 objects had %d incarnations, want 2 each", h.err, h.run.incarnations)
	}
	x.chance = 0.1
	h = x.try(t, x.fullHistory(1))
	for _, c := range h.calls[x.clients*x.calls:] {
		if c.outcome != answered {
			t.Errorf("%v of the last client: %v", c.in, c.err)
		}
	}
	if last := h.events[len(h.events)-2*x.calls:]; len(h.run.endings) < 10 || last[0].call == nil || last[0].call.name.client != x.clients {
		t.Errorf("%d endings, not all before the last client", len(h.run.endings))
	}
}

// Shrinking omits the calls and endings that a history does not need.
func TestHistoryShrinks(t *testing.T) {
	x := counting(losesUpdates).untyped()
	x.chance = 0.03
	try := func(p subHistory) *history { return x.try(t, p) }
	for seed := uint64(0); ; seed++ {
		h := try(x.fullHistory(seed))
		if !h.noOrder() || len(h.run.endings) == 0 {
			continue
		}
		short := shrink(h, try)
		if n := len(short.operations()); n > 8 || len(short.run.endings) > 1 || !short.noOrder() {
			t.Errorf("%d calls, %d endings, no order: %v\n%s", n, len(short.run.endings), short.noOrder(), short.table())
		}
		if err := differAt(short, try(short.sub)); err != nil {
			t.Error(err)
		}
		return
	}
}

func TestCallFateOfErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want outcome
		bad  bool
	}{
		{nil, answered, false},
		{&dohost.Error{Err: dohost.ErrClosed, Outcome: dohost.OutcomeNotRun}, notRun, false},
		{&dohost.Error{Err: dohost.ErrFenced}, unknown, false},
		{&dohost.Error{Err: context.Canceled}, unknown, false},
		{fmt.Errorf("of two calls: %w", &dohost.Error{Err: context.Canceled}), unknown, false},
		{&dohost.Error{Err: &dohost.Error{Err: dohost.ErrFenced}, Outcome: dohost.OutcomeRan}, unknown, false},
		{&dohost.Error{Err: errors.New("no"), Outcome: dohost.OutcomeRan}, unknown, true},
		{errors.New("no"), unknown, true},
	} {
		if got, bad := outcomeOf(c.err); got != c.want || (bad != nil) != c.bad {
			t.Errorf("%v: %v, %v", c.err, got, bad)
		}
	}
}

func TestHistoryPartIsParsed(t *testing.T) {
	x := counting(immediate).untyped()
	if p, err := x.parseSubHistory("seed:7"); err != nil || p.String() != "seed:7,clients:4,calls:8" {
		t.Errorf("%v, %v", p, err)
	}
	for _, text := range []string{"seed:7,clients:4,calls:8", "seed:0,clients:2,calls:1,only:0.1+12.3,endings:0+4", "seed:1,clients:1,calls:1,only:,endings:"} {
		if p, err := x.parseSubHistory(text); err != nil || p.String() != text {
			t.Errorf("%q: %v, %v", text, p, err)
		}
	}
	for _, text := range []string{"", "7", "seed:x", "seed:1,", "calls:1,seed:1", "seed:1,calls:0.1", "seed:1,only:x", "seed:1,endings:x", "seed:1,luck:2", "sum/a:3:fence"} {
		if p, err := x.parseSubHistory(text); err == nil {
			t.Errorf("%q: %v", text, p)
		}
	}
}

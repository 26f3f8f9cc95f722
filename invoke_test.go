package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/errkind"
)

// account is an object that others call by names.
type account struct{ st *dohost.State }

const accounts dohost.Namespace[account] = "account"

func accountClass() dohost.Class {
	return dohost.Bind(accounts, func(_ context.Context, st *dohost.State) (*account, error) { return &account{st}, nil }, nil,
		dohost.Expose("deposit", (*account).deposit), dohost.Expose("slow", (*account).slow), dohost.Expose("fail", (*account).fail),
		dohost.ExposeRead("long", (*account).long), dohost.Expose("big", (*account).big), dohost.Expose("panic", (*account).panics),
		dohost.Expose("close", dohost.Bare((*account).close)), dohost.Expose("transfer", (*account).transfer), dohost.Expose("chain", (*account).chain),
		dohost.ExposeRead("balance", func(a *account, ctx context.Context, _ int) (int, error) { return a.balance(ctx) }))
}

func (a *account) balance(ctx context.Context) (int, error) {
	n, _, err := dohost.Get[int](ctx, a.st.Storage(), "n")
	return n, err
}

func (a *account) deposit(ctx context.Context, n int) (int, error) {
	if err := dohost.Add(ctx, a.st.Storage(), "n", n); err != nil {
		return 0, err
	}
	return a.balance(ctx)
}

// slow deposits one half before an Await, and the other half after it.
func (a *account) slow(ctx context.Context, n int) (int, error) {
	if _, err := a.deposit(ctx, n/2); err != nil {
		return 0, err
	}
	if err := dohost.Sleep(ctx, time.Second); err != nil {
		return 0, err
	}
	return a.deposit(ctx, n/2)
}

// fail deposits, and returns an error with the balance.
func (a *account) fail(ctx context.Context, n int) (int, error) {
	n, err := a.deposit(ctx, n)
	if err != nil {
		return 0, err
	}
	return n, &dohost.PublicError{Message: fmt.Sprint(n), Code: "refused", Status: 409, Err: dohost.ErrNotFound}
}

func (a *account) long(ctx context.Context, d time.Duration) (int, error) {
	if err := dohost.Sleep(ctx, d); err != nil {
		return 0, err
	}
	return a.deposit(ctx, 1)
}

func (a *account) big(ctx context.Context, size int) (string, error) {
	_, err := a.deposit(ctx, 1)
	return strings.Repeat("x", size), err
}

var panics atomic.Int64 // runs of the method that panics

func (a *account) panics(ctx context.Context, n int) (int, error) {
	panics.Add(1)
	if _, err := a.deposit(ctx, n); err != nil {
		return 0, err
	}
	panic("in a method")
}

func (a *account) close(ctx context.Context) error { return a.st.Storage().DeleteAll(ctx) }

type transfer struct {
	To string
	N  int
	ID string // of the call
}

// transfer withdraws, and deposits at another account.
func (a *account) transfer(ctx context.Context, tr transfer) (int, error) {
	if _, err := a.deposit(ctx, -tr.N); err != nil {
		return 0, err
	}
	return dohost.Invoke[int](ctx, accounts.Get(a.st, tr.To), "deposit", tr.N, &dohost.InvokeOptions{CallID: tr.ID})
}

// chain calls the other account, which calls this one.
func (a *account) chain(ctx context.Context, names [2]string) (int, error) {
	return dohost.Invoke[int](ctx, accounts.Get(a.st, names[1]), "chain", [2]string{names[1], names[0]}, nil)
}

func codeOf(err error) string {
	if err == nil {
		return ""
	}
	b, _ := dohost.DescribeError(err)
	return b.Code
}

// pair is two hosts. One has the accounts whose names begin with a, the other has the others.
type pair struct {
	dohost.Locator // of the host of the accounts with a

	hosts    [2]atomic.Pointer[dohost.Host]
	attempts atomic.Int64
	// fault is called with the number of the attempt, before and after it. An error of it is that of the attempt. It may be nil.
	fault func(attempt int64, after bool) error
}

func placeOf(id dohost.ID) int {
	if strings.HasPrefix(id.Name, "a") {
		return 0
	}
	return 1
}

// withPair runs f in a bubble, with a pair that is open.
func withPair(t *testing.T, f func(t *testing.T, p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pair{}
		p.Locator = dohost.NewLocator(p.hosts[0].Load)
		for i := range p.hosts {
			h, err := dohost.Open(t.TempDir(), &dohost.Options{
				Remote: p, Holds: func(id dohost.ID) bool { return placeOf(id) == i }, Grace: -1,
			}, accountClass())
			if err != nil {
				t.Fatal(err)
			}
			p.hosts[i].Store(h)
		}
		defer p.close(t)
		f(t, p)
	})
}

func (p *pair) close(t *testing.T) {
	t.Helper()
	for i := range p.hosts {
		if err := p.hosts[i].Load().Close(); err != nil {
			t.Error(err)
		}
	}
}

// arrived is the context of a call that has arrived from another host, without the values of its caller.
type arrived struct{ context.Context }

// Value returns nil.
func (arrived) Value(any) any { return nil }

// InvokeRemote implements dohost.Remote.
func (p *pair) InvokeRemote(ctx context.Context, c *dohost.RemoteCall) ([]byte, error) {
	n := p.attempts.Add(1)
	if p.fault != nil {
		if err := p.fault(n, false); err != nil {
			return nil, err
		}
	}
	answer := p.hosts[placeOf(c.ID)].Load().AnswerCall(arrived{ctx}, c)
	if p.fault != nil {
		if err := p.fault(n, true); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

var errLost = errors.New("the answer is lost")

// TestCallOfAnotherHostRunsOnce loses the answers of the first attempts, with a call that has an id of the host.
func TestCallOfAnotherHostRunsOnce(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		p.fault = func(n int64, after bool) error {
			if after && n <= 3 {
				return errLost
			}
			return nil
		}
		n, err := dohost.Invoke[int](t.Context(), accounts.Get(p, "b"), "deposit", 7, nil)
		if err != nil || n != 7 || p.attempts.Load() != 4 {
			t.Errorf("%d, %v after %d attempts", n, err, p.attempts.Load())
		}
		if n, err := dohost.Invoke[int](t.Context(), accounts.Get(p, "b"), "deposit", 7, nil); err != nil || n != 14 {
			t.Errorf("another call: %d, %v", n, err)
		}
	})
}

// TestObjectCallsObjectOfAnotherHost makes a call from inside a turn. The answers of its first attempts are lost.
func TestObjectCallsObjectOfAnotherHost(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		p.fault = func(n int64, after bool) error {
			switch {
			case n == 1 && !after:
				return &dohost.Error{Err: errkind.ErrElsewhere, Outcome: dohost.OutcomeNotRun, Retryable: true}
			case n == 2 && after:
				return errLost
			}
			return nil
		}
		n, err := dohost.Invoke[int](t.Context(), accounts.Get(p, "a"), "transfer", transfer{To: "b", N: 5}, nil)
		if err != nil || n != 5 || p.attempts.Load() != 3 {
			t.Fatalf("%d, %v after %d attempts", n, err, p.attempts.Load())
		}
		for name, want := range map[string]int{"a": -5, "b": 5} {
			if n, err := dohost.Invoke[int](t.Context(), accounts.Get(p, name), "balance", 0, nil); err != nil || n != want {
				t.Errorf("the balance of %s is %d, %v", name, n, err)
			}
		}
	})
}

// TestCallWithoutAnAnswerHasAnUnknownOutcome loses all answers, and then does not reach the other host.
func TestCallWithoutAnAnswerHasAnUnknownOutcome(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		p.fault = func(_ int64, after bool) error {
			if after {
				return errLost
			}
			return nil
		}
		start := time.Now()
		_, err := dohost.Invoke[int](t.Context(), accounts.Get(p, "b"), "deposit", 7, nil)
		if e, _ := errors.AsType[*dohost.Error](err); !errors.Is(err, errLost) || e.Outcome != dohost.OutcomeUnknown || time.Since(start) > time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		p.fault = func(_ int64, after bool) error {
			return &dohost.Error{Err: dohost.ErrClosed, Outcome: dohost.OutcomeNotRun, Retryable: true}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = dohost.Invoke[int](ctx, accounts.Get(p, "b"), "deposit", 7, nil)
		if e, _ := errors.AsType[*dohost.Error](err); !errors.Is(err, dohost.ErrClosed) || e.Outcome != dohost.OutcomeNotRun {
			t.Errorf("%v", err)
		}
		p.fault = nil
		if n, err := dohost.Invoke[int](t.Context(), accounts.Get(p, "b"), "balance", 0, nil); err != nil || n != 7 {
			t.Errorf("the balance is %d, %v", n, err)
		}
	})
}

// TestErrorsOfInvoke compares the errors of methods of this host and of another one.
func TestErrorsOfInvoke(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		cases := 0
		for _, name := range []string{"a", "b"} {
			for _, id := range []string{"", "with an id"} {
				account := accounts.Get(p, name+id)
				o := &dohost.InvokeOptions{CallID: id}
				invoke := func(method string, arg any) error {
					cases++
					_, err := dohost.Invoke[int](t.Context(), account, method, arg, o)
					o.CallID += "i"[:min(len(id), 1)] // each call has another one
					if e, ok := err.(*dohost.Error); !ok || e.ID != account.ID() || e.Op != method {
						t.Errorf("%s of %s: %#v", method, account.ID(), err)
					}
					return err
				}
				want := func(err error, code string, o dohost.Outcome, kind error) {
					t.Helper()
					e, _ := errors.AsType[*dohost.Error](err)
					if codeOf(err) != code || e.Outcome != o || kind != nil && !errors.Is(err, kind) {
						t.Errorf("%v, id %q: %v: code %s, outcome %v", account.ID(), id, err, codeOf(err), e.Outcome)
					}
				}
				err := invoke("fail", 1)
				want(err, "refused", dohost.OutcomeRan, dohost.ErrNotFound)
				if pub, ok := errors.AsType[*dohost.PublicError](err); !ok || pub.Message != "1" || pub.Status != 409 || pub.Err != nil {
					t.Errorf("%v", err)
				}
				want(invoke("none", 1), "no_method", dohost.OutcomeNotRun, dohost.ErrNotFound)
				want(invoke("deposit", "text"), "bad_argument", dohost.OutcomeNotRun, nil)
				switch {
				case id != "":
					want(invoke("big", 1<<20), "failed", dohost.OutcomeRan, nil)
					continue
				case name == "a":
					want(invoke("big", 16<<20), "failed", dohost.OutcomeRan, nil)
				}
				if _, err := dohost.Invoke[int](t.Context(), account, "deposit", strings.Repeat("x", 16<<20), nil); codeOf(err) != "too_large" {
					t.Errorf("large argument: %.200v", err)
				}
				_, err = dohost.Invoke[string](t.Context(), account, "balance", 0, nil)
				if e, _ := errors.AsType[*dohost.Error](err); e == nil || e.Outcome != dohost.OutcomeRan {
					t.Errorf("a result of another type: %v", err)
				}
			}
		}
		if cases != 15 {
			t.Errorf("%d cases", cases)
		}
	})
}

// TestCallIDsAreChecked repeats calls with ids in wrong ways, and after their retention period.
func TestCallIDsAreChecked(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		begun := time.Now()
		for _, name := range []string{"a", "b"} {
			account := accounts.Get(p, name)
			invoke := func(method string, n int, o dohost.InvokeOptions) (int, error) {
				return dohost.Invoke[int](t.Context(), account, method, n, &o)
			}
			first := time.Now()
			for range 3 {
				if n, err := invoke("deposit", 1, dohost.InvokeOptions{CallID: "x", Keep: time.Hour, Since: first}); err != nil || n != 1 {
					t.Errorf("%s: %d, %v", name, n, err)
				}
			}
			for _, wrong := range []struct {
				method string
				n      int
				o      dohost.InvokeOptions
				code   string
			}{
				{"deposit", 2, dohost.InvokeOptions{CallID: "x"}, "call_conflict"}, {"slow", 1, dohost.InvokeOptions{CallID: "x"}, "call_conflict"},
				{"deposit", 1, dohost.InvokeOptions{CallID: strings.Repeat("x", 129)}, "internal"}, {"deposit", 1, dohost.InvokeOptions{CallID: "\xff"}, "internal"},
				{"deposit", 1, dohost.InvokeOptions{Keep: 1}, "internal"}, {"deposit", 1, dohost.InvokeOptions{Since: first}, "internal"},
				{"deposit", 1, dohost.InvokeOptions{CallID: "y", Keep: -1}, "internal"}, {"deposit", 1, dohost.InvokeOptions{CallID: "y", Keep: 721 * time.Hour}, "internal"},
			} {
				_, err := invoke(wrong.method, wrong.n, wrong.o)
				want := dohost.OutcomeNotRun
				if wrong.code == "call_conflict" { // the other call has run
					want = dohost.OutcomeUnknown
				}
				if e, _ := errors.AsType[*dohost.Error](err); codeOf(err) != wrong.code || e.Outcome != want || time.Since(first) > 0 {
					t.Errorf("%s: %+v: %v", name, wrong, err)
				}
			}
			time.Sleep(59 * time.Minute)
			if _, err := invoke("deposit", 0, dohost.InvokeOptions{CallID: "w"}); err != nil {
				t.Error(err)
			}
			if n, err := invoke("deposit", 1, dohost.InvokeOptions{CallID: "x", Keep: time.Hour, Since: first}); err != nil || n != 1 {
				t.Errorf("%s: after 59 minutes: %d, %v", name, n, err)
			}
			time.Sleep(2 * time.Minute)
			_, err := invoke("deposit", 1, dohost.InvokeOptions{CallID: "x", Keep: time.Hour, Since: first})
			if e, _ := errors.AsType[*dohost.Error](err); codeOf(err) != "call_expired" || e.Outcome != dohost.OutcomeUnknown {
				t.Errorf("%s: after the retention period: %v", name, err)
			}
			if n, err := invoke("deposit", 1, dohost.InvokeOptions{CallID: "x", Keep: time.Hour}); err != nil || n != 1 {
				t.Errorf("%s: the result is stored until another call deletes it: %d, %v", name, n, err)
			}
			time.Sleep(time.Hour)
			if n, err := invoke("deposit", 1, dohost.InvokeOptions{CallID: "other"}); err != nil || n != 2 {
				t.Errorf("%s: %d, %v", name, n, err)
			}
			if n, err := invoke("deposit", 1, dohost.InvokeOptions{CallID: "x", Keep: time.Hour}); err != nil || n != 3 {
				t.Errorf("%s: a call with an id whose result was deleted: %d, %v", name, n, err)
			}
		}
		if time.Since(begun) < 4*time.Hour {
			t.Error("no time has passed")
		}
	})
}

// TestRepetitionWaitsForTheRun repeats a call while its method awaits, and after its incarnation has ended.
func TestRepetitionWaitsForTheRun(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		a := accounts.Get(p, "a")
		invoke := func(ctx context.Context, id string) (int, error) {
			return dohost.Invoke[int](ctx, a, "long", 10*time.Second, &dohost.InvokeOptions{CallID: id})
		}
		results := make(chan int, 3)
		for range 3 {
			go func() {
				n, err := invoke(t.Context(), "x")
				if err != nil {
					t.Error(err)
				}
				results <- n
			}()
		}
		start := time.Now()
		for range 3 {
			if n := <-results; n != 1 {
				t.Errorf("the result is %d", n)
			}
		}
		if d := time.Since(start); d > 11*time.Second {
			t.Errorf("it took %v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := invoke(ctx, "y"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		p.hosts[0].Load().Evict(a.ID(), dohost.EndFence)
		for range 2 {
			_, err := invoke(t.Context(), "y")
			if e, _ := errors.AsType[*dohost.Error](err); codeOf(err) != "call_interrupted" || e.Outcome != dohost.OutcomeUnknown || !errors.Is(err, dohost.ErrFenced) {
				t.Errorf("after an interruption: %v", err)
			}
		}
		if n, err := dohost.Invoke[int](t.Context(), a, "balance", 0, nil); err != nil || n != 1 {
			t.Errorf("the balance is %d, %v", n, err)
		}
	})
}

// TestPanicIsRepeatedTwice calls a method that panics, of both hosts.
func TestPanicIsRepeatedTwice(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		for _, name := range []string{"a", "b"} {
			account, runs := accounts.Get(p, name), panics.Load()
			_, err := dohost.Invoke[int](t.Context(), account, "panic", 1, &dohost.InvokeOptions{CallID: "x"})
			if e, _ := errors.AsType[*dohost.Error](err); !errors.Is(err, dohost.ErrFenced) || e.Outcome != dohost.OutcomeUnknown || panics.Load()-runs != 3 {
				t.Errorf("%s: %v after %d runs", name, err, panics.Load()-runs)
			}
		}
	})
}

// TestCallRows counts the rows of calls: those of methods that write nothing, that end their incarnation, and that delete all.
func TestCallRows(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		for i, c := range []struct {
			method string
			arg    any
			rows   int
			ends   bool // the call never has a result
		}{
			{"balance", 0, 1, false}, {"deposit", 1, 1, false}, {"deposit", "text", 0, true}, {"panic", 1, 0, true}, {"close", nil, 1, false}, {"fail", 1, 1, true}, {"none", 1, 0, true},
		} {
			b := accounts.Get(p, fmt.Sprint("b", i))
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				_, err := dohost.Invoke[any](ctx, b, c.method, c.arg, &dohost.InvokeOptions{CallID: "x"})
				cancel()
				if (err != nil) != c.ends {
					t.Errorf("%s: %v", c.method, err)
				}
				if n := storedCalls(t, p.hosts[1].Load(), b.ID()); n != c.rows {
					t.Errorf("%s has %d rows, want %d", c.method, n, c.rows)
				}
			}
		}
	})
}

func storedCalls(t *testing.T, h *dohost.Host, id dohost.ID) int {
	t.Helper()
	n := 0
	err := dohost.Do(t.Context(), h, id, func(ctx context.Context, object any) (err error) {
		c := dohost.Collection[struct{}]{Name: "dohost.calls"}
		n, err = c.Count(ctx, object.(*account).st.Storage(), nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// callTotal is the row that has the size of the stored calls of an object.
type callTotal struct{ Bytes int }

var callTotals = dohost.Collection[callTotal]{Name: "dohost.calls.total", Key: func(callTotal) string { return "total" }}

// TestCallRowsAreBounded fills the table of an account.
func TestCallRowsAreBounded(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		b, calls := accounts.Get(p, "b"), 0
		call := func(id int) error {
			_, err := dohost.Invoke[string](t.Context(), b, "big", 1000, &dohost.InvokeOptions{CallID: fmt.Sprint(id), Keep: time.Hour})
			return err
		}
		total := func(change func(int) int) (n int) {
			err := dohost.Do(t.Context(), p.hosts[1].Load(), b.ID(), func(ctx context.Context, object any) error {
				s := object.(*account).st.Storage()
				r, _, err := callTotals.Get(ctx, s, "total")
				if n = r.Value.Bytes; err != nil || change == nil {
					return err
				}
				return callTotals.Put(ctx, s, callTotal{change(n)})
			})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		for ; calls < 10; calls++ {
			if err := call(calls); err != nil {
				t.Fatal(err)
			}
		}
		size := total(nil) / calls // of each: the result, and the rest of the row
		if size < 1000 || size > 1500 {
			t.Errorf("a call counts %d bytes", size)
		}
		const rest = 10000
		total(func(int) int { return 64<<20 - rest })
		for err := error(nil); err == nil && calls < 100; calls++ {
			if err = call(calls); err == nil {
				continue
			}
			if e, _ := errors.AsType[*dohost.Error](err); !errors.Is(err, dohost.ErrOverloaded) || e.Outcome != dohost.OutcomeNotRun {
				t.Errorf("call %d: %v", calls, err)
			}
		}
		if fits := calls - 11; fits != rest/size && fits != rest/size+1 {
			t.Errorf("%d calls of %d bytes fit into %d", fits, size, rest)
		}
		if err := call(0); err != nil {
			t.Errorf("a repetition: %v", err)
		}
		time.Sleep(2 * time.Hour)
		for range 3 { // each call deletes some expired rows
			if err := call(calls); err != nil {
				t.Error(err)
			}
			calls++
		}
		if n := storedCalls(t, p.hosts[1].Load(), b.ID()); n > 11 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// TestChainOfRemoteCallsEnds lets two accounts of two hosts call each other.
func TestChainOfRemoteCallsEnds(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		_, err := dohost.Invoke[int](t.Context(), accounts.Get(p, "a"), "chain", [2]string{"a", "b"}, nil)
		if !errors.Is(err, dohost.ErrMisuse) || p.attempts.Load() > 70 {
			t.Errorf("%v after %d attempts", err, p.attempts.Load())
		}
	})
}

package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/sharedlog/logtest"
)

// account is an object that calls others.
type account struct{ st *dohost.State }

const accounts dohost.Namespace[account] = "account"

func accountClass() dohost.Class {
	return dohost.Bind(accounts, func(_ context.Context, st *dohost.State) (*account, error) { return &account{st}, nil }, &dohost.Handlers[account]{
		Authorize: func(context.Context, *dohost.AccessRequest) (dohost.Access, error) { return dohost.Access{}, nil }, // it refuses all clients
	}, dohost.Expose("add", (*account).add), dohost.Expose("move", (*account).move), dohost.Expose("hang", (*account).hang))
}

func (p *account) add(ctx context.Context, n int) (int, error) {
	if err := dohost.Add(ctx, p.st.Storage(), "n", n); err != nil {
		return 0, err
	}
	n, _, err := dohost.Get[int](ctx, p.st.Storage(), "n")
	return n, err
}

// Secret is a method that is not exposed.
func (p *account) Secret(context.Context, int) (int, error) { return 0, nil }

type move struct {
	To string
	N  int
}

func (p *account) move(ctx context.Context, m move) (int, error) {
	if _, err := p.add(ctx, -m.N); err != nil {
		return 0, err
	}
	return dohost.Invoke[int](ctx, accounts.Get(p.st, m.To), "add", m.N, &dohost.InvokeOptions{CallID: "1"}) // other callers use this id too
}

func (p *account) hang(ctx context.Context, n int) (int, error) {
	return n, dohost.Sleep(ctx, time.Hour)
}

// callHost is a host of a cell, as programs have it.
type callHost struct {
	*dohost.Host
	http.Handler
}

// cellsOfCalls is the number of cells of the tests of calls.
const cellsOfCalls = 3

// inCell returns the name of an object in a cell.
func inCell(cell int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint(i); CellOf(dohost.ID{Class: string(accounts), Name: name}, cellsOfCalls) == cell {
			return name
		}
	}
}

// startCalling starts a node whose requests are for no object.
func startCalling(t *testing.T, id string) *routed {
	n := startRouted(t, id, testSecret, cellsOfCalls)
	n.o.Cell = func(id dohost.ID) int { return CellOf(id, cellsOfCalls) }
	t.Cleanup(n.calls.close)
	return n
}

// open opens the host of a cell on its log, and makes the node serve it.
func (n *routed) open(t *testing.T, log *logtest.Log, cell int) *dohost.Host {
	t.Helper()
	return n.openClasses(t, log, cell, accountClass())
}

// openClasses is open with these classes.
func (n *routed) openClasses(t *testing.T, log *logtest.Log, cell int, classes ...dohost.Class) *dohost.Host {
	t.Helper()
	lease, err := log.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h, err := dohost.Open(t.TempDir(), &dohost.Options{
		Lease: lease, Remote: n.Node, Holds: func(id dohost.ID) bool { return CellOf(id, cellsOfCalls) == cell }, Grace: -1,
	}, classes...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() }) // an error for a former owner
	host := Host(callHost{h, http.NotFoundHandler()})
	n.cells[cell].serves.Store(&host)
	return h
}

// openThree opens the cells 0 and 2 on the first node, and 1 on the second.
func openThree(t *testing.T, logs *[cellsOfCalls]logtest.Log) (a, b *routed, hosts [cellsOfCalls]*dohost.Host) {
	a, b = startCalling(t, "a"), startCalling(t, "b")
	hosts = [...]*dohost.Host{a.open(t, &logs[0], 0), b.open(t, &logs[1], 1), a.open(t, &logs[2], 2)}
	knows(map[string]string{"a": a.URL, "b": b.URL}, []string{"a", "b", "a"}, a, b)
	return a, b, hosts
}

// TestObjectsOfDifferentCellsCallEachOther has one object in each cell. Each one moves a sum to each other one.
func TestObjectsOfDifferentCellsCallEachOther(t *testing.T) {
	var logs [cellsOfCalls]logtest.Log
	_, _, hosts := openThree(t, &logs)
	for i := range cellsOfCalls {
		for j := range cellsOfCalls {
			if i != j {
				if _, err := dohost.Invoke[int](t.Context(), accounts.Get(hosts[i], inCell(i)), "move", move{inCell(j), 1 + i}, nil); err != nil {
					t.Errorf("from cell %d to %d: %v", i, j, err)
				}
			}
		}
	}
	for at := range cellsOfCalls {
		for i, want := range [...]int{2 + 3 - 2*1, 1 + 3 - 2*2, 1 + 2 - 2*3} {
			if n, err := dohost.Invoke[int](t.Context(), accounts.Get(hosts[at], inCell(i)), "add", 0, nil); err != nil || n != want {
				t.Errorf("the object of cell %d has %d, want %d: %v", i, n, want, err)
			}
		}
	}
}

// TestTakeOverBetweenEffectAndAnswer loses the answer of a call. Before the caller repeats it, another node has taken over the log of the cell.
func TestTakeOverBetweenEffectAndAnswer(t *testing.T) {
	var logs [cellsOfCalls]logtest.Log
	a, b, hosts := openThree(t, &logs)
	c := startCalling(t, "c")
	taken := atomic.Bool{}
	cut := cutAfter(func() {
		if taken.CompareAndSwap(false, true) {
			c.open(t, &logs[1], 1)
			knows(map[string]string{"a": a.URL, "c": c.URL}, []string{"a", "c", "a"}, a, c)
		}
	})
	b.around.Store(&cut)
	n, err := dohost.Invoke[int](t.Context(), accounts.Get(hosts[0], inCell(0)), "move", move{inCell(1), 5}, nil)
	if err != nil || n != 5 || !taken.Load() || c.requests.Load() == 0 {
		t.Fatalf("%d, %v; %d requests to the new owner", n, err, c.requests.Load())
	}
	if n, err := dohost.Invoke[int](t.Context(), accounts.Get(hosts[0], inCell(1)), "add", 0, nil); err != nil || n != 5 {
		t.Errorf("the balance is %d, %v", n, err)
	}
}

// cutAfter returns a function that makes a handler call f in the end, and cut the connection instead of an answer.
func cutAfter(f func()) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(httptest.NewRecorder(), r)
			f()
			panic(http.ErrAbortHandler)
		})
	}
}

// TestCallsThatAreForgedAreRefused sends calls that no node has made.
func TestCallsThatAreForgedAreRefused(t *testing.T) {
	var logs [cellsOfCalls]logtest.Log
	a, b, hosts := openThree(t, &logs)
	other := startRouted(t, "b", "another secret..", cellsOfCalls)
	valid := sentCall{To: "b", Cell: 1, Class: []byte(accounts), Name: []byte(inCell(1)), Method: []byte("add"), CallID: []byte("x"), Keep: 1e6, Size: 1}
	valid.Sum = sumOf("7")
	signed := func(change func(*sentCall)) string {
		s := valid
		change(&s)
		return a.signCall(&s)
	}
	none := func(*sentCall) {}
	good := signed(none)
	passedOn := (&router{node: a.Node}).sign(httptest.NewRequest(http.MethodPost, "http://x"+callPath, nil), passed{hops: 1, client: "10.0.0.1:1"})
	fields, mac, _ := strings.Cut(good, " ")
	cases := 0
	for name, tt := range map[string]struct {
		to     *routed
		header []string
		body   string
		status int
	}{
		"no signature":              {b, []string{fields}, "7", http.StatusForbidden},
		"an empty signature":        {b, []string{fields + " "}, "7", http.StatusForbidden},
		"an empty header":           {b, []string{""}, "7", http.StatusForbidden},
		"two headers":               {b, []string{good, good}, "7", http.StatusForbidden},
		"another secret":            {b, []string{other.signCall(&valid)}, "7", http.StatusForbidden},
		"the signature of a call":   {b, []string{strings.Replace(signed(func(s *sentCall) { s.Name = []byte("y") }), " ", "x ", 1)}, "7", http.StatusForbidden},
		"a changed text":            {b, []string{fields[:len(fields)-1] + " " + mac}, "7", http.StatusForbidden},
		"that of a passed-on one":   {b, []string{passedOn}, "7", http.StatusForbidden},
		"another argument":          {b, []string{good}, "8", http.StatusForbidden},
		"a longer argument":         {b, []string{good}, "77", http.StatusForbidden},
		"a large argument":          {b, []string{signed(func(s *sentCall) { s.Size = maxArgument + 1 })}, "7", http.StatusForbidden},
		"another node":              {a, []string{good}, "7", http.StatusMisdirectedRequest},
		"a former process":          {b, []string{signed(func(s *sentCall) { s.To = "old" })}, "7", http.StatusMisdirectedRequest},
		"a cell of another node":    {b, []string{signed(func(s *sentCall) { s.Cell = 0 })}, "7", http.StatusMisdirectedRequest},
		"a cell that is none":       {b, []string{signed(func(s *sentCall) { s.Cell = -1 })}, "7", http.StatusMisdirectedRequest},
		"a method that is no entry": {b, []string{signed(func(s *sentCall) { s.Method = []byte("Secret") })}, "7", http.StatusOK},
		"an object of another cell": {b, []string{signed(func(s *sentCall) { s.Name = []byte(inCell(0)) })}, "7", http.StatusOK},
	} {
		cases++
		status, body := send(t, http.MethodPost, tt.to.URL+callPath, http.Header{CallHeader: tt.header}, strings.NewReader(tt.body))
		var refused struct {
			Ran   string
			Error struct{ Outcome dohost.Outcome }
		}
		if err := json.Unmarshal([]byte(body), &refused); err != nil || status != tt.status ||
			refused.Ran != "no" && (status != http.StatusOK || refused.Error.Outcome != dohost.OutcomeNotRun) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if cases != 17 {
		t.Errorf("%d cases", cases)
	}
	for i := range cellsOfCalls {
		if n, err := dohost.Invoke[int](t.Context(), accounts.Get(hosts[0], inCell(i)), "add", 0, nil); err != nil || n != 0 {
			t.Errorf("the object of cell %d has %d, %v", i, n, err)
		}
	}
	for name, header := range map[string]string{"no signature": fields, "another length": good} {
		r := httptest.NewRequest(http.MethodPost, callPath, unread{t})
		r.Header.Set(CallHeader, header)
		r.ContentLength = maxArgument
		w := httptest.NewRecorder()
		b.Server.Config.Handler.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
	for range 2 { // a captured request has no second effect
		if status, body := send(t, http.MethodPost, b.URL+callPath, http.Header{CallHeader: {good}}, strings.NewReader("7")); status != http.StatusOK || body != `{"result":7}` {
			t.Errorf("a valid call: %d %s", status, body)
		}
	}
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

// Read fails the test.
func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.EOF
}

// TestCallThatIsNotServedDidNotRun calls an object of a cell without a holder, of one whose holder cannot be reached, and of one that has moved.
func TestCallThatIsNotServedDidNotRun(t *testing.T) {
	a, b := startCalling(t, "a"), startCalling(t, "b")
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	knows(map[string]string{"a": a.URL, "b": b.URL, "gone": closed.URL}, []string{"", "gone", "b"}, a, b)
	for i, want := range [cellsOfCalls]error{errNotServed, errNotSent, errElsewhere} {
		answer, err := a.InvokeRemote(t.Context(), &dohost.RemoteCall{ID: dohost.ID{Class: string(accounts), Name: inCell(i)}, Method: "add", CallID: "x", Argument: []byte("1")})
		e, ok := err.(*dohost.Error)
		if !ok || !errors.Is(err, want) || e.Outcome != dohost.OutcomeNotRun || !e.Retryable {
			t.Errorf("cell %d: %q, %v", i, answer, err)
		}
	}
	if n := b.requests.Load(); n != 1 {
		t.Errorf("%d requests: a call was passed on", n)
	}
}

// TestCalleeThatHangsHoldsFewCalls calls an object that does not answer from many goroutines, and then another one of its cell.
func TestCalleeThatHangsHoldsFewCalls(t *testing.T) {
	var logs [cellsOfCalls]logtest.Log
	a, _, hosts := openThree(t, &logs)
	hanging := accounts.Get(hosts[0], inCell(1))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const calls = 2 * maxObjectCalls
	ended := make(chan error, calls)
	for range calls {
		go func() {
			_, err := dohost.Invoke[int](ctx, hanging, "hang", 1, nil)
			ended <- err
		}()
	}
	for range calls - maxObjectCalls {
		err := <-ended
		if e, ok := err.(*dohost.Error); !ok || !errors.Is(err, dohost.ErrOverloaded) || e.Outcome != dohost.OutcomeNotRun {
			t.Fatal(err)
		}
	}
	free := ""
	for i := 0; free == "" || free == inCell(1); i++ {
		if name := fmt.Sprint("other", i); CellOf(dohost.ID{Class: string(accounts), Name: name}, cellsOfCalls) == 1 {
			free = name
		}
	}
	if n, err := dohost.Invoke[int](t.Context(), accounts.Get(hosts[0], free), "add", 3, nil); err != nil || n != 3 {
		t.Errorf("another object: %d, %v", n, err)
	}
	cancel()
	for range maxObjectCalls {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if a.calls.waiting != 0 || len(a.calls.byObject) != 0 {
		t.Errorf("%d calls are still counted", a.calls.waiting)
	}
}

// TestAnswersOfOtherKindsHaveAnUnknownOutcome has nodes that answer in other ways than this package does.
func TestAnswersOfOtherKindsHaveAnUnknownOutcome(t *testing.T) {
	a := startCalling(t, "a")
	cases := 0
	for name, answer := range map[string]http.HandlerFunc{
		"endless":      func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, io.LimitReader(zeros{}, maxAnswer+2)) },
		"not found":    http.NotFound,
		"cut":          func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"ran, unknown": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502); fmt.Fprint(w, `{"ran":"unknown"}`) },
	} {
		cases++
		s := httptest.NewServer(answer)
		knows(map[string]string{"a": a.URL, "b": s.URL}, []string{"b", "b", "b"}, a)
		_, err := a.InvokeRemote(t.Context(), &dohost.RemoteCall{ID: dohost.ID{Class: string(accounts), Name: "x"}, Method: "add", CallID: "x", Argument: []byte("1")})
		if e, ok := err.(*dohost.Error); !ok || e.Outcome != dohost.OutcomeUnknown {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
	}
	if cases != 4 {
		t.Errorf("%d cases", cases)
	}
}

// zeros is a reader without an end.
type zeros struct{}

// Read reads zeros.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// sumOf returns the SHA-256 of an argument.
func sumOf(argument string) []byte {
	sum := sha256.Sum256([]byte(argument))
	return sum[:]
}

// TestAnswerThatIsTooLongIsNotRead has an answer whose length is too large.
func TestAnswerThatIsTooLongIsNotRead(t *testing.T) {
	res := &http.Response{ContentLength: maxAnswer + 1, Body: io.NopCloser(unread{t})}
	if _, err := readAnswer(res); err == nil {
		t.Error("there is no error")
	}
}

package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// TestScripts runs the scripts of testdata and compares the behaviour of the runtime, as
// its Listener and its callers see it. -rewrite rewrites the transcripts.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		synctest.Test(t, func(t *testing.T) {
			s := &script{fs: objectstore.NewMemFS(), gates: map[string]chan struct{}{}, begun: time.Now()}
			s.open(t)
			defer s.end()
			datadriven.RunTest(t, path, s.run)
		})
	})
}

// script is a host with one class; its objects execute the lines of the script.
type script struct {
	h       *Host
	fs      *objectstore.FS
	begun   time.Time
	syncs   int64
	release func() // of held syncs, or nil

	mu      sync.Mutex
	onAlarm []string            // lines for the alarm handlers
	told    []string            // by the Listener
	answers map[string][]string // to callers
	gates   map[string]chan struct{}
}

func (s *script) open(t *testing.T) {
	l := Listener{
		Waking: func(id ID, e objectstore.Epoch) { s.tell("%s waking", name(id, e)) },
		Live:   func(id ID, e objectstore.Epoch) { s.tell("%s live", name(id, e)) },
		Fenced: func(e Ended) { s.tell("%s fenced: %v", name(e.ID, e.Epoch), e.Cause) },
		EventEnded: func(e Event) {
			s.tell("%s %s returned%s", name(e.ID, e.Epoch), e.Op, suffix(e.Err))
		},
		Refused: func(id ID, e objectstore.Epoch) { s.tell("%s refused", name(id, e)) },
		AlarmEnded: func(a Alarm) {
			s.tell("%s alarm run, attempt %d, %v late%s", a.ID.Name, a.Attempt, a.Late, suffix(a.Err))
		},
		AlarmStale:  func(id ID) { s.tell("%s alarm stale", id.Name) },
		StoreFailed: func(err error) { s.tell("store failed: %v", err) },
		Failed:      func(err error) { s.tell("failed: %v", err) },
	}
	class := Class{Name: "c", New: newCounter, Alarm: func(ctx context.Context, o any, _ alarm.Info) error {
		_, err := s.do(ctx, o.(*counter), s.handler())
		return err
	}}
	opts := Options{Listener: l, Grace: time.Second}
	opts.Store.FS = s.fs
	h, err := Open("data", opts, []Class{class})
	if err != nil {
		t.Fatal(err)
	}
	s.h, s.syncs = h, s.fs.Syncs()
}

func name(id ID, e objectstore.Epoch) string {
	return fmt.Sprintf("%s#%d.%d", id.Name, e.Host, e.Incarnation)
}

func suffix(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

func lines(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == '\n' })
}

func (s *script) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, fmt.Sprintf(format, args...))
}

func (s *script) handler() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.onAlarm
}

func (s *script) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told, s.answers = nil, map[string][]string{}
}

func (s *script) gate(name string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gates[name] == nil {
		s.gates[name] = make(chan struct{})
	}
	return s.gates[name]
}

// run executes one command, and returns when every goroutine waits.
func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	s.forget()
	switch d.Cmd {
	case "call": // call NAME OBJECT, and the handler's lines
		s.call(t, d.CmdArgs[0].Key, d.CmdArgs[1].Key, lines(d.Input))
	case "open-gate":
		close(s.gate(d.CmdArgs[0].Key))
	case "hold-syncs":
		s.release = s.fs.HoldSyncs()
	case "fail-syncs":
		s.fs.FailSyncs(errors.New("injected"))
	case "let-syncs":
		s.letGo()
	case "evict":
		mode, err := eviction.ParseEndMode(d.CmdArgs[1].Key)
		if err != nil {
			s.tell("%v", err)
		}
		if !s.h.Evict(ID{Class: "c", Name: d.CmdArgs[0].Key}, mode) {
			s.tell("nothing to evict")
		}
	case "handler":
		s.mu.Lock()
		s.onAlarm = lines(d.Input)
		s.mu.Unlock()
	case "sleep":
		wait, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		time.Sleep(wait)
	case "close":
		s.tell("close returned%s", suffix(s.h.Close()))
	case "restart": // from the disk after a power cut, or with "clean" after a Close
		if !d.HasArg("clean") {
			s.fs = s.fs.Crash(0, 1)
			s.h.store.Abandon()
		}
		_ = s.h.Close()
		synctest.Wait()
		s.forget()
		s.open(t)
	default:
		d.Fatalf(t, "no such command")
	}
	synctest.Wait()
	return s.transcript()
}

// transcript lists the events since the command: by object, the Listener's events of its
// incarnations and alarms, in order, and the events that returned; then the answers by
// caller.
func (s *script) transcript() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(s.told, func(a, b string) int { return strings.Compare(rank(a), rank(b)) })
	out := s.told
	for _, caller := range slices.Sorted(maps.Keys(s.answers)) {
		out = append(out, s.answers[caller]...)
	}
	if n := s.fs.Syncs(); n > s.syncs {
		out = append(out, "synced") // the committer decides how often
		s.syncs = n
	}
	if len(out) == 0 {
		return ""
	}
	return strings.Join(out, "\n") + "\n"
}

// rank sorts a line. An event returns on its own goroutine, when the next may have begun.
func rank(line string) string {
	object := line[:strings.IndexAny(line, "# ")]
	if strings.Contains(line, " returned") {
		return object + " returned " + line
	}
	return object
}

// end releases all waiting goroutines.
func (s *script) end() {
	s.letGo()
	for _, gate := range s.gates {
		select {
		case <-gate:
		default:
			close(gate)
		}
	}
	_ = s.h.Close() // some scripts fail the store
}

func (s *script) letGo() {
	if s.release != nil {
		s.release()
		s.release = nil
	}
}

func (s *script) call(t *testing.T, caller, object string, todo []string) {
	go func() {
		var result string
		err := s.h.Do(t.Context(), ID{Class: "c", Name: object}, Call{Op: caller, Handler: Func(func(ctx context.Context, o any) (err error) {
			result, err = s.do(ctx, o.(*counter), todo)
			return err
		})})
		var answer string
		if e, ok := errors.AsType[*Error](err); ok { // its handler may still run
			answer = fmt.Sprintf("%s -> %v (ran: %v)", caller, e.Err, e.Outcome)
		} else {
			answer = fmt.Sprintf("%s -> %s%s", caller, result, suffix(err))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answers[caller] = append(s.answers[caller], answer)
	}()
}

// do executes a handler's lines. The result is the last number.
func (s *script) do(ctx context.Context, c *counter, todo []string) (result string, err error) {
	for i, line := range todo {
		op, arg, _ := strings.Cut(line, " ")
		var n int
		switch op {
		case "add":
			amount, _ := strconv.Atoi(arg)
			n, err = c.add(ctx, amount)
			result = strconv.Itoa(n)
		case "get":
			n, err = c.get(ctx, "n")
			result = strconv.Itoa(n)
		case "await": // a gate, without the turn
			err = Await(ctx, func(ctx context.Context) error { return s.wait(ctx, arg) })
		case "keep": // a gate, with the turn, deaf to its context
			<-s.gate(arg)
		case "ask": // call another object, which executes the rest of the lines
			err = s.h.Do(ctx, ID{Class: "c", Name: arg}, Call{Op: "ask", Handler: Func(func(ctx context.Context, o any) (err error) {
				result, err = s.do(ctx, o.(*counter), todo[i+1:])
				return err
			})})
			return result, err
		case "alarm":
			var in time.Duration
			if in, err = time.ParseDuration(arg); err == nil {
				err = c.s.SetAlarm(ctx, time.Now().Add(in))
			}
		case "exclusive", "transaction": // the rest of the lines
			within := map[string]func(context.Context, func(context.Context) error) error{"exclusive": Exclusive, "transaction": Transaction}[op]
			err = within(ctx, func(ctx context.Context) (err error) {
				result, err = s.do(ctx, c, todo[i+1:])
				return err
			})
			return result, err
		case "fail":
			err = errors.New(arg)
		case "abort":
			err = c.s.Abort(ctx, errors.New(arg), false)
		case "panic":
			panic(arg)
		default:
			err = fmt.Errorf("no such line: %s", line)
		}
		if err != nil {
			return "", err
		}
	}
	return result, nil
}

func (s *script) wait(ctx context.Context, gate string) error {
	select {
	case <-s.gate(gate):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

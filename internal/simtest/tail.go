package simtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// printTimes has the times when a program prints its lines, from its start.
var printTimes = []time.Duration{time.Second, time.Second, 2 * time.Second}

func printedLine(session string, n int) string { return fmt.Sprintf("%s, line %d", session, n) }

func sessionOf(program string) string { return "session of " + program }

// fakeConsole runs programs outside: they print whether or not a client reads. Each has a
// session. Its output can be read from any cursor: the number of lines before.
type fakeConsole struct {
	mu     sync.Mutex
	began  map[string]time.Time // by session
	read   map[string]int       // the last cursor of a read, by session
	faults []error
}

func (c *fakeConsole) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began, c.read, c.faults = map[string]time.Time{}, map[string]int{}, nil
}

// begin starts a program, unless it runs.
func (c *fakeConsole) begin(program string) (session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	session = sessionOf(program)
	if _, ok := c.began[session]; !ok {
		c.began[session] = time.Now()
	}
	return session
}

// recordRead records a read of a session, and returns when the session began. A reader's cursor
// must not decrease.
func (c *fakeConsole) recordRead(session string, cursor int) (began time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	began, ok := c.began[session]
	if !ok {
		return began, fmt.Errorf("no session %q", session)
	}
	if last := c.read[session]; cursor < last {
		c.faults = append(c.faults, fmt.Errorf("%s is read from line %d, and was from %d", session, cursor, last))
	}
	c.read[session] = cursor
	return began, nil
}

// next waits for the line at a cursor, and returns it and all available lines after it. At
// the end there is none.
func (c *fakeConsole) next(ctx context.Context, session string, cursor int) (lines []string, err error) {
	began, err := c.recordRead(session, cursor)
	if err != nil || cursor >= len(printTimes) {
		return nil, err
	}
	if wait := time.Until(began.Add(printTimes[cursor])); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	for n := cursor; n < len(printTimes) && time.Since(began) >= printTimes[n]; n++ {
		lines = append(lines, printedLine(session, n+1))
	}
	return lines, nil
}

func (c *fakeConsole) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.faults...)
}

// copyProgress is the progress of copying the output of a program.
type copyProgress struct {
	Program string
	Session string // empty before the program has begun
	Cursor  int
}

// tail is an agent with fibers that copy the output of programs.
type tail struct {
	*agent.Agent[none]
	console *fakeConsole
}

var tails dohost.Namespace[tail] = "tail"

const copying agent.FiberKind[copyProgress] = "copying"

// The programs: one is followed by StartFiber, the other by RunFiber.
const (
	startedProgram = "x"
	runProgram     = "y"
)

func (t *tail) start(ctx context.Context, program string) (none, error) {
	_, err := agent.StartFiber(ctx, t, copying, copyProgress{Program: program}, &agent.FiberOptions{Key: program})
	return none{}, err
}

// run follows a program within this call, unless a fiber has begun to.
func (t *tail) run(ctx context.Context, program string) (none, error) {
	_, begun, err := dohost.Get[bool](ctx, t.Storage(), "begun "+program)
	if err != nil || begun {
		return none{}, err
	}
	if err := dohost.Put(ctx, t.Storage(), "begun "+program, true); err != nil {
		return none{}, err
	}
	return none{}, agent.RunFiber(ctx, t, program, func(ctx context.Context) error {
		return t.follow(ctx, copyProgress{Program: program})
	})
}

func (t *tail) copying(ctx context.Context, f *agent.Fiber[copyProgress]) error {
	return t.follow(ctx, f.Checkpoint())
}

func (t *tail) resume(ctx context.Context, i *agent.InterruptedRun) error {
	at := copyProgress{Program: i.Name}
	if _, err := i.Checkpoint(&at); err != nil {
		return err
	}
	_, err := i.Resume(ctx, func(ctx context.Context) error { return t.follow(ctx, at) })
	return err
}

// follow copies the remaining output. Lines and the cursor after them are one batch.
func (t *tail) follow(ctx context.Context, at copyProgress) error {
	if at.Session == "" {
		session, err := dohost.AwaitValue(ctx, func(context.Context) (string, error) { return t.console.begin(at.Program), nil })
		if err != nil {
			return err
		}
		at.Session = session
		if err := agent.SaveCheckpoint(ctx, at); err != nil {
			return err
		}
	}
	for {
		lines, err := dohost.AwaitValue(ctx, func(ctx context.Context) ([]string, error) {
			return t.console.next(ctx, at.Session, at.Cursor)
		})
		if err != nil || len(lines) == 0 {
			return err
		}
		copied, err := t.copied(ctx, at.Program)
		if err != nil {
			return err
		}
		at.Cursor += len(lines)
		err = errors.Join(dohost.Put(ctx, t.Storage(), at.Program, append(copied, lines...)), agent.SetCheckpoint(ctx, at))
		if err != nil {
			return err
		}
	}
}

// copied returns the copied output of a program.
func (t *tail) copied(ctx context.Context, program string) (lines []string, err error) {
	lines, _, err = dohost.Get[[]string](ctx, t.Storage(), program)
	return lines, err
}

// newTail has fibers that copy the output of outside programs, from a cursor on.
func newTail() dohosttest.Scenario {
	c := &fakeConsole{}
	c.reset()
	return dohosttest.Scenario{
		Classes: []dohost.Class{agent.Bind(tails, func(_ context.Context, a *agent.Agent[none]) (*tail, error) {
			return &tail{a, c}, nil
		}, &agent.Handlers[tail, none]{OnInterrupted: (*tail).resume},
			agent.OnFiber(copying, (*tail).copying, &agent.KindOptions{MaxRetries: 1000, KeepCompleted: -1}))},
		Reset:  c.reset,
		Places: agentPlaces,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			_, err := retryCall(ctx, tails.Get(h, "a"), (*tail).start, startedProgram)
			_, err2 := retryCall(ctx, tails.Get(h, "a"), (*tail).run, runProgram)
			return errors.Join(err, err2)
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			err := c.err()
			for _, program := range []string{startedProgram, runProgram} {
				copied, err2 := dohost.Call(ctx, tails.Get(h, "a"), (*tail).copied, program)
				var want []string
				for n := range printTimes {
					want = append(want, printedLine(sessionOf(program), n+1))
				}
				err = errors.Join(err, err2, differ("the output of "+program, copied, want))
			}
			return err
		},
	}
}

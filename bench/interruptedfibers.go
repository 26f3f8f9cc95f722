package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// sleeper is an agent with a fiber that sleeps until its incarnation ends.
type sleeper struct {
	*agent.Agent[struct{}]
	log *fiberLog
}

const sleepers dohost.Namespace[sleeper] = "sleeper"

func sleeperClass(r *fiberLog) dohost.Class {
	return agent.Bind(sleepers, func(_ context.Context, a *agent.Agent[struct{}]) (*sleeper, error) {
		return &sleeper{a, r}, nil
	}, &agent.Handlers[sleeper, struct{}]{
		OnInterrupted: func(s *sleeper, _ context.Context, i *agent.InterruptedRun) error {
			return s.log.write(hooked, s.Name(), i.ID)
		},
	})
}

// sleep opens the fiber. It never returns: the process is killed.
func (s *sleeper) sleep(ctx context.Context, _ int) (int, error) {
	return 0, agent.RunFiber(ctx, s, "sleep", func(ctx context.Context) error {
		id, _ := agent.FiberID(ctx)
		if err := s.log.write(opened, s.Name(), id); err != nil {
			return err
		}
		return dohost.Await(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
	})
}

// has returns whether the agent has the fiber.
func (s *sleeper) has(ctx context.Context, id string) (bool, error) {
	_, ok, err := s.Fibers().Get(ctx, id)
	return ok, err
}

// Kinds of lines in a log.
const (
	opened = 'o' // a fiber
	hooked = 'h' // a call of OnInterrupted with a fiber
)

// fiberLog is a file outside of the store that records opened fibers and hooks. Its lines outlive the process.
type fiberLog struct {
	f     *os.File
	want  int64 // lines of this process
	lines atomic.Int64
	first atomic.Int64
	all   chan int64 // receives the time of the last line, in ns since 1970
}

func openFiberLog(dir string, want int) (*fiberLog, error) {
	f, err := os.OpenFile(filepath.Join(dir, "roll"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &fiberLog{f: f, want: int64(want), all: make(chan int64, 1)}, nil
}

// write adds a line, in one piece.
func (r *fiberLog) write(kind rune, name, id string) error {
	now := time.Now().UnixNano()
	if _, err := fmt.Fprintf(r.f, "%c %s %s\n", kind, name, id); err != nil {
		return err
	}
	n := r.lines.Add(1)
	if n == 1 {
		r.first.Store(now)
	}
	if n == r.want {
		r.all <- now
	}
	return nil
}

// checkFiberLog reads the log of a directory. Each of want agents has opened one fiber, and its hook was called once
// for that fiber. It returns the fibers, by their agents.
func checkFiberLog(dir string, want int) (fibers map[string]string, err error) {
	f, err := os.Open(filepath.Join(dir, "roll"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fibers = map[string]string{}
	hookCalls := map[string]int{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var kind rune
		var name, id string
		if _, err := fmt.Sscanf(lines.Text(), "%c %s %s", &kind, &name, &id); err != nil {
			return nil, fmt.Errorf("line %q of the roll: %w", lines.Text(), err)
		}
		switch {
		case kind == hooked:
			hookCalls[name+" "+id]++
		case fibers[name] != "":
			return nil, fmt.Errorf("%s has opened two fibers", name)
		default:
			fibers[name] = id
		}
	}
	if len(fibers) != want || len(hookCalls) != want {
		return nil, fmt.Errorf("%d fibers were started and %d hooks called, want %d", len(fibers), len(hookCalls), want)
	}
	for name, id := range fibers {
		if n := hookCalls[name+" "+id]; n != 1 {
			return nil, fmt.Errorf("the hook of %s was called %d times for its fiber", name, n)
		}
	}
	return fibers, lines.Err()
}

// openSleepers opens a host of sleepers, and the log in the same directory.
func openSleepers(dir string, want int) (h *dohost.Host, r *fiberLog, err error) {
	if r, err = openFiberLog(dir, want); err != nil {
		return nil, nil, err
	}
	h, err = dohost.Open(filepath.Join(dir, "store"), &dohost.Options{IdleAfter: -1}, sleeperClass(r))
	return h, r, err
}

// sleepAll is the process that opens fibers, one in each agent, and is killed.
func sleepAll(ctx context.Context, o childParams, reports *json.Encoder) error {
	h, r, err := openSleepers(o.Dir, o.Fibers)
	if err != nil {
		return err
	}
	return together(o.Fibers+1, func(i int) error {
		if i < o.Fibers {
			_, err := dohost.Call(ctx, sleepers.Get(h, name(i)), (*sleeper).sleep, 0)
			return err
		}
		<-r.all
		return errors.Join(reports.Encode(recovered{}), awaitParent(), h.Close())
	})
}

// recovered is the report of a process about its recovery.
type recovered struct {
	Open, First, Last int64 // when the host was open, and OnInterrupted called, in ns since 1970
	Processor         int64 // time of all cores that the process used, in ns; set by its parent
}

// recoverAll is the process after it. It gets no request.
func recoverAll(_ context.Context, o childParams, reports *json.Encoder) error {
	h, r, err := openSleepers(o.Dir, o.Fibers)
	if err != nil {
		return err
	}
	done := recovered{Open: time.Now().UnixNano()}
	select {
	case done.Last = <-r.all:
	case <-time.After(time.Minute):
		return errors.Join(fmt.Errorf("after a minute %d of %d hooks were called", r.lines.Load(), o.Fibers), h.Close())
	}
	done.First = r.first.Load()
	return errors.Join(reports.Encode(done), awaitParent(), h.Close())
}

// interruptedFibers is the number of open fibers in a process that is killed.
const interruptedFibers = 10_000

// interrupted kills processes full of open fibers, and measures the time until the next process has called the hooks
// of all of them.
func interrupted(ctx context.Context, b *bench) error {
	n := min(interruptedFibers, b.objects)
	var rates, open, first, last, processor []float64
	for i := range b.rounds {
		b.progress("process %d of %d", i+1, b.rounds)
		began, r, err := b.interrupt(ctx, n)
		if err != nil {
			return err
		}
		since := func(at int64) float64 { return float64(at-began.UnixNano()) / 1e6 }
		open, first, last = append(open, since(r.Open)), append(first, since(r.First)), append(last, since(r.Last))
		processor = append(processor, float64(r.Processor)/1e3/float64(n))
		rates = append(rates, float64(n)*1e3/since(r.Last))
	}
	b.add(Row{
		ID: "P13", Unit: "recoveries/s",
		What: fmt.Sprintf("SIGKILL with %d interrupted fibers, one in each of as many agents: from the start of the next "+
			"process to the last recovery hook, no request", n),
		Sides:  []Figure{{Side: ours, Value: median(rates), Rounds: rates, Checked: int64(n * b.rounds)}},
		Target: Target{Text: "≥ 20,000 recoveries/s", MinValue: 20_000},
		Notes: []string{
			fmt.Sprintf("from the start of the process: %.3g ms until the host was open, %.3g ms to the first hook, "+
				"%s ms to the last", median(open), median(first), number(median(last))),
			fmt.Sprintf("the process took %.3g µs of the cores' time for each, its start and end included", median(processor)),
			"each call of a hook is charged durably before it; each writes a line to a file outside of the store",
			"afterwards the file has each fiber once as started and once as notified, and a host that was opened again " +
				"has none of them, and no alarm",
		},
	})
	return nil
}

// interrupt kills one process and starts the next, and checks the store that they leave.
func (b *bench) interrupt(ctx context.Context, n int) (began time.Time, r recovered, err error) {
	o := childParams{Work: "sleep", Fibers: n}
	if o.Dir, err = b.newDir(); err != nil {
		return began, r, err
	}
	p, err := o.start(ctx)
	if err != nil {
		return began, r, err
	}
	err = p.reports.Decode(&r)
	if err = errors.Join(err, p.kill()); err != nil {
		return began, r, err
	}
	o.Work, o.Profiles = "recover", b.profiles // a killed process writes no profile
	if p, err = o.start(ctx); err != nil {
		return began, r, err
	}
	err = p.reports.Decode(&r)
	if err = errors.Join(err, p.close()); err != nil {
		return began, r, err
	}
	used := p.cmd.ProcessState
	r.Processor = int64(used.UserTime() + used.SystemTime())
	return p.began, r, errors.Join(noFibers(ctx, o.Dir, n), os.RemoveAll(o.Dir))
}

// noFibers returns an error unless each hook was called once, and no fiber is left.
func noFibers(ctx context.Context, dir string, n int) (err error) {
	fibers, err := checkFiberLog(dir, n)
	if err != nil {
		return fmt.Errorf("no figure: %w", err)
	}
	h, r, err := openSleepers(dir, 0)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, h.Close(), r.f.Close()); err == nil {
			_, err = checkFiberLog(dir, n) // no hook was called again
		}
	}()
	for name, id := range fibers {
		s := sleepers.Get(h, name)
		info, err := h.Inspect(ctx, s.ID())
		if err != nil {
			return err
		}
		has, err := dohost.Call(ctx, s, (*sleeper).has, id)
		if err == nil && (has || !info.Alarm.IsZero()) {
			err = fmt.Errorf("no figure: %s has its fiber: %v; its alarm: %v", name, has, info.Alarm)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

package randagent

import (
	"context"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/internal/randtest"
)

// machine is an agent that executes programs.
type machine struct {
	*agent.Agent[state]
	w           *Observer
	incarnation int
	failures    map[int]int        // of the present runs of callbacks, by number
	deleting    map[string][]*bool // the present deletions of sub-agents, by name: whether it was added again
	changed     []int              // the numbers of the states that OnStateChanged got
	runs        map[string]*rowRun // the calls for rows that have begun and not ended, by id
	interrupted map[string]int     // the attempts of the calls for rows that earlier incarnations have begun; nil before the first comparison
}

var machines dohost.Namespace[machine] = "random-agent"

const (
	quiet agent.FiberKind[progress] = "quiet" // without OnRecovery and OnFiberEnded
	loud  agent.FiberKind[progress] = "loud"

	timer agent.Callback[payload] = "timer"
	task  agent.Callback[payload] = "task"

	maxRetries       = 3  // of a fiber
	maxInterruptions = 5  // of a schedule or an item
	maxRestarts      = 2  // of a fiber, by programs
	maxRuns          = 3  // of a schedule that recurs: then it cancels itself
	maxBegins        = 8  // of runs of a schedule that recurs, with those that were cut off
	maxNumber        = 60 // of fibers, schedules, items and states: programs that are cut off make more in each run

	keepCompleted = time.Minute // only of quiet fibers
	keepFailed    = 2 * time.Minute
)

// Class returns the class of the agent that executes programs.
func Class(w *Observer) dohost.Class {
	return agent.Bind(machines, func(ctx context.Context, base *agent.Agent[state]) (*machine, error) {
		a := &machine{Agent: base, w: w, failures: map[int]int{}, deleting: map[string][]*bool{}, runs: map[string]*rowRun{}}
		m, err := a.read(ctx)
		if err != nil {
			return nil, err
		}
		a.incarnation = w.Wake(m.Serial)
		return a, nil
	}, &agent.Handlers[machine, state]{
		OnStart:        (*machine).onStart,
		Validate:       (*machine).validate,
		OnStateChanged: (*machine).onStateChanged,
		OnAccept:       (*machine).onAccept,
		OnConnect:      (*machine).onConnect,
		OnMessage:      (*machine).onMessage,
		OnClose:        (*machine).onClose,
		OnInterrupted:  (*machine).onInterrupted,
		OnRecovery:     (*machine).onRecovery,
		OnFiberEnded:   (*machine).onFiberEnded,
		Options:        agent.Options{StuckAfter: 24 * time.Hour},
	},
		append(rowEntries(),
			agent.Sub[machine](children),
			agent.OnFiber(quiet, (*machine).runFiber, &agent.KindOptions{KeepCompleted: keepCompleted, KeepFailed: keepFailed, Quiet: true}),
			agent.OnFiber(loud, (*machine).runFiber, &agent.KindOptions{KeepCompleted: -1, KeepFailed: keepFailed}),
			agent.OnSchedule(timer, (*machine).runTimer), agent.OnSchedule(task, (*machine).runTask))...)
}

// run executes a program, as one event. It returns the version of the model.
func (a *machine) run(ctx context.Context, p Program) (serial int, err error) {
	return p.Run(func(name string, list []Instr) error {
		return (&execution{machine: a, name: name}).do(ctx, list)
	}, func() (int, error) {
		m, err := a.load(ctx)
		if err != nil {
			return 0, err
		}
		return m.Serial, nil
	})
}

// execution is the execution of a list of instructions.
type execution struct {
	*machine
	name string
}

func (x *execution) do(ctx context.Context, list []Instr) error {
	return randtest.Execute(ctx, &x.w.StoredReport, x.name, list, Instr.control, x.step)
}

// one executes an instruction with a name.
func (x *execution) one(ctx context.Context, name string, in Instr) error {
	return randtest.ExecuteOne(ctx, &x.w.StoredReport, name, in, Instr.control, x.step)
}

// step executes an instruction between two comparisons.
func (x *execution) step(ctx context.Context, name string, in Instr) error {
	x = &execution{machine: x.machine, name: name}
	m, err := x.load(ctx)
	if err != nil {
		return err
	}
	if adds[in.Op] && m.Next >= maxNumber {
		return nil
	}
	switch in.Op {
	case Await:
		err = dohost.Await(ctx, func(context.Context) error { x.w.Acknowledge(m.Serial); return nil })
	case Sleep:
		err = dohost.Sleep(ctx, time.Duration(in.N)*time.Millisecond)
	case Sync:
		if err = x.Storage().Sync(ctx); err == nil {
			x.w.Acknowledge(m.Serial)
		}
	case Run:
		return x.runNow(ctx, in)
	case Wait:
		err = x.wait(ctx, m, in)
	case Start, Cancel, Restart, Remove:
		err = x.changeFiber(ctx, m, in)
	case Schedule, ScheduleAgain, CancelSchedule:
		err = x.changeTimer(ctx, m, in)
	case PutRow, RemoveRow, RetryRows:
		err = x.changeRows(ctx, m, in)
	case AddSub, PutSub, DestroySub, DeleteSub:
		err = x.changeSubs(ctx, m, in)
	case SetState:
		err = x.setState(ctx, m, in)
	default:
		err = x.changeQueue(ctx, m, in)
	}
	if err == nil {
		if x.w.Compared(); changes[in.Op] {
			_, err = x.load(ctx)
		}
		if x.w.Fault != nil && x.w.Fault(x.incarnation, in) {
			x.w.Faultf("%s: %s is not as expected", x.name, randtest.Literal(in))
		}
	}
	return err
}

// adds are the instructions that use a number.
var adds = map[Op]bool{Start: true, Run: true, Schedule: true, Enqueue: true, SetState: true, PutRow: true}

// changes are the instructions that change the agent in one batch with the model.
var changes = map[Op]bool{
	Start: true, Cancel: true, Restart: true, Remove: true, Schedule: true, ScheduleAgain: true, CancelSchedule: true,
	Enqueue: true, CancelItem: true, RetryDead: true, DeleteDead: true, SetState: true, AddSub: true,
	PutRow: true, RemoveRow: true, RetryRows: true,
}

// expect compares the result of an instruction with that of the model.
func (x *execution) expect(in Instr, of any, got, want any) {
	if got != want {
		x.w.Faultf("%s: %s of %v returns %v, want %v", x.name, in.Op, of, got, want)
	}
}

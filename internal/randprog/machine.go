package randprog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/hostof"
)

// machine is an object that executes programs.
type machine struct {
	st          *dohost.State
	w           *Observer
	incarnation int
}

var machines dohost.Namespace[machine] = "program"

type row struct {
	K, N int
}

var (
	rowFeed = dohost.Feed{Name: "rows"}
	rows    = dohost.Collection[row]{
		Name:    "rows",
		Key:     func(r row) string { return rowKey(r.K) },
		Indexes: []dohost.Index[row]{{Name: "n", Of: func(r row) dohost.Key { return dohost.KeyOf(r.N) }}},
		Feed:    &rowFeed,
	}
)

// Class returns the class of the objects that execute programs.
func Class(w *Observer) dohost.Class {
	return dohost.Bind(machines, func(ctx context.Context, st *dohost.State) (*machine, error) {
		m := &machine{st: st, w: w}
		sockets := map[string][]foundSocket{}
		for _, tag := range socketTags {
			sockets[tag] = describe(st.Sockets(tag))
		}
		found, err := m.contents(ctx)
		if err != nil {
			return nil, err
		}
		m.incarnation = w.wake(st.ID().Name, hostof.State(st).(*dohost.Host), found)
		w.wakeSockets(st.ID().Name, sockets)
		return m, nil
	}, &dohost.Handlers[machine]{
		OnAlarm: (*machine).onAlarm, OnHTTP: (*machine).onHTTP, ByReference: true,
		OnSocket: &dohost.SocketHandlers[machine]{Message: (*machine).onMessage, Closed: (*machine).onClosed},
	})
}

func rowKey(k int) string { return fmt.Sprintf("r%d", k) }

func key(k int) string { return fmt.Sprintf("k%d", k) }

// contents reads the storage.
func (m *machine) contents(ctx context.Context) (*state, error) {
	s := newState()
	for it, err := range dohost.All[int](ctx, m.st.Storage(), nil) {
		if err != nil {
			return nil, err
		}
		s.keys[it.Key] = it.Value
	}
	for r, err := range rows.All(ctx, m.st.Storage(), nil) {
		if err != nil {
			return nil, err
		}
		s.rows[r.Key] = modelRow{r.Value.N, r.Version}
	}
	start, err := rowFeed.Start(ctx, m.st.Storage())
	if err != nil {
		return nil, err
	}
	end, err := rowFeed.End(ctx, m.st.Storage())
	if err != nil {
		return nil, err
	}
	s.entries = int(end.Offset - start.Offset)
	s.feed, err = m.readFeed(ctx)
	return s, err
}

var errNotDense = errors.New("the offsets of the feed are not dense")

func (m *machine) readFeed(ctx context.Context) ([]change, error) {
	read, err := rowFeed.Read(ctx, m.st.Storage(), dohost.Position{}, 10_000)
	if err != nil {
		return nil, err
	}
	var list []change
	for i, c := range read {
		if c.Position.Offset != read[0].Position.Offset+uint64(i) {
			return nil, errNotDense
		}
		list = append(list, change{c.Op.String(), c.Key, c.Version})
	}
	return list, nil
}

// request is the argument of a call.
type request struct {
	Name   string
	Cause  *output
	Code   []Instr
	Socket bool // the request is for a socket
}

var errFail = errors.New("the program fails")

// run executes a program, as one event.
func (m *machine) run(ctx context.Context, q request) (int, error) {
	return m.execute(ctx, m.w.begin(m.st.ID().Name, q.Name, m.incarnation, q.Cause), q.Code)
}

// onAlarm executes a program that the time of the alarm selects.
func (m *machine) onAlarm(ctx context.Context, info dohost.AlarmInfo) error {
	e := m.w.beginAlarm(m.st.ID().Name, m.incarnation, info)
	r := rand.New(rand.NewPCG(uint64(info.Scheduled.UnixMilli()), uint64(info.Attempt)))
	var list []Instr
	if !m.w.passive {
		list = drawBody(r, 1+r.IntN(3), 1, true)
	}
	list = slices.DeleteFunc(list, func(in Instr) bool { return in.Op == SetAlarm && r.IntN(2) == 0 || in.Op == Call })
	_, err := m.execute(ctx, e, list)
	return err
}

// execute executes a program that needs nothing but the object.
func (m *machine) execute(ctx context.Context, e *event, list []Instr) (int, error) {
	return (&execution{machine: m, e: e}).perform(ctx, list)
}

// perform executes the program of the event.
func (x *execution) perform(ctx context.Context, list []Instr) (int, error) {
	ended := false
	defer func() {
		if !ended {
			x.w.abandon(x.e)
		}
	}()
	err := x.do(ctx, list)
	if ended = err == nil || errors.Is(err, errFail); ended {
		x.w.end(x.e, x.answer, err != nil)
	}
	return x.answer, err
}

// execution is the execution of an event's program.
type execution struct {
	*machine
	e      *event
	answer int
	calls  int

	response  http.ResponseWriter // nil unless the event is an HTTP request for a response
	handshake *handshake          // nil unless the event is a request for a socket, and accepts none yet
	socket    *dohost.Socket      // of the event; nil: none
}

func (x *execution) do(ctx context.Context, list []Instr) error {
	for _, in := range list {
		if err := x.step(ctx, in); err != nil {
			return err
		}
	}
	return nil
}

// name returns the name of an event that this one causes.
func (x *execution) name(kind string) string {
	x.calls++
	return fmt.Sprintf("%s, %s %d", x.e.name, kind, x.calls)
}

// step executes an instruction. An error ends the program.
func (x *execution) step(ctx context.Context, in Instr) error {
	switch in.Op {
	case Fail:
		return errFail
	case Panic:
		panic("as the program says")
	case Goexit:
		runtime.Goexit()
	case Transaction:
		return x.transaction(ctx, in)
	case Exclusive:
		return x.exclusive(ctx, in)
	case Emit:
		return x.emit(ctx)
	case Go:
		return x.task(ctx, in)
	case Sync, Durable, Await, Flush, Sleep, HoldTurn, Call, Copy:
		return x.pause(ctx, in)
	case Accept:
		return x.accept(in)
	case Sockets, SendFrame, Broadcast, Attach, CloseSocket:
		return x.onSockets(ctx, in)
	}
	got, apply, err := x.access(ctx, in)
	if ended(ctx, err) {
		return err
	}
	if err != nil {
		got = kind(err)
	}
	x.w.step(x.e, in, got, apply)
	x.answer = 31*x.answer + len(got)
	return nil
}

// ended reports whether an error is due to the end of the incarnation.
func ended(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || errors.Is(err, dohost.ErrFenced) || errors.Is(err, dohost.ErrClosed))
}

// noSpace is the kind of the error of a write that a full disk refuses.
const noSpace = "no space"

// kind names the kind of an error.
func kind(err error) string {
	if _, ok := errors.AsType[*dohost.LimitError](err); ok {
		return "limit"
	}
	switch {
	case errors.Is(err, dohost.ErrConflict):
		return "conflict"
	case errors.Is(err, dohost.ErrNotFound):
		return "not found"
	case errors.Is(err, dohost.ErrNoSpace):
		return noSpace
	}
	return "unexpected error: " + err.Error()
}

var errRollback = errors.New("rolled back")

func (x *execution) transaction(ctx context.Context, in Instr) error {
	begun := false
	err := dohost.Transaction(ctx, func(ctx context.Context) error {
		begun = true
		x.w.beginTransaction(x.e)
		if err := x.do(ctx, in.Body); err != nil {
			return err
		}
		if in.N%2 == 1 {
			return errRollback
		}
		return nil
	})
	if begun && (err == nil || errors.Is(err, errRollback) || errors.Is(err, errFail)) {
		x.w.endTransaction(x.e, err != nil)
	}
	if errors.Is(err, errRollback) {
		return nil
	}
	return err
}

func (x *execution) exclusive(ctx context.Context, in Instr) error {
	return dohost.Exclusive(ctx, func(ctx context.Context) error {
		x.w.enter(x.e)
		err := x.do(ctx, in.Body)
		if err == nil || errors.Is(err, errFail) {
			x.w.leave(x.e)
		}
		return err
	})
}

func (x *execution) emit(ctx context.Context) error {
	out := x.w.emit(x.e)
	name := x.name("output")
	return x.st.Emit(ctx, func(err error) {
		if err == nil {
			x.w.leaves(out, name)
		}
	})
}

func (x *execution) task(ctx context.Context, in Instr) error {
	out := x.w.emit(x.e)
	name := x.name("task")
	return x.st.Go(ctx, name, func(ctx context.Context) error {
		_, err := x.execute(ctx, x.w.begin(x.st.ID().Name, name, x.incarnation, out), in.Body)
		return err
	})
}

// pause executes an instruction that waits.
func (x *execution) pause(ctx context.Context, in Instr) (err error) {
	if in.Op == Flush && x.response == nil {
		return nil
	}
	x.w.commit(x.e, in.Op != Sync)
	var called error
	switch in.Op {
	case Sync:
		err = x.st.Storage().Sync(ctx)
	case Durable:
		err = dohost.AwaitDurable(ctx)
	case Flush:
		err = x.flush()
	case Await:
		err = dohost.Await(ctx, func(context.Context) error { x.w.durable(x.e, false); return nil })
	case Copy:
		err = dohost.Await(ctx, func(ctx context.Context) error { x.w.durable(x.e, false); return x.copyObject(ctx) })
	case Sleep:
		err = dohost.Sleep(ctx, time.Duration(in.N)*time.Millisecond)
	case HoldTurn:
		err = dohost.Await(ctx, func(ctx context.Context) error {
			x.w.durable(x.e, false)
			err := dohost.HoldTurn(ctx, func(ctx context.Context) error {
				x.w.acquire(x.e)
				called = x.do(ctx, in.Body)
				if called == nil || errors.Is(called, errFail) {
					x.w.commit(x.e, true)
				}
				return called
			})
			if err == nil {
				x.w.durable(x.e, false)
			}
			return err
		})
	case Call:
		called, err = x.call(ctx, in)
	}
	if errors.Is(err, errFail) && in.Op == HoldTurn {
		called, err = errFail, nil
	}
	if err != nil {
		return err
	}
	if in.Op != Sync {
		x.w.acquire(x.e)
	}
	if in.Op == Sync || in.Op == Durable {
		x.w.durable(x.e, in.Op == Sync)
	}
	return called
}

// call calls another object. The error of the callee ends nothing.
func (x *execution) call(ctx context.Context, in Instr) (_, own error) {
	if x.st.ID().Name >= objectName(in.K) {
		return nil, dohost.Await(ctx, func(context.Context) error { return nil })
	}
	name := x.name("call")
	answer, err := dohost.Call(ctx, machines.Get(x.st, objectName(in.K)), (*machine).run, request{Name: name, Cause: x.w.asked(x.e), Code: in.Body})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	x.w.answered(objectName(in.K), name, answer, err)
	return nil, nil
}

func objectName(k int) string { return fmt.Sprintf("o%d", k) }

func dohostOutcome(err error) dohost.Outcome {
	if e, ok := errors.AsType[*dohost.Error](err); ok {
		return e.Outcome
	}
	return dohost.OutcomeUnknown
}

package randinbox

import (
	"context"
	"encoding/json"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/randtest"
)

// office is an object with several agents, an inbox of jobs, and streams of chunks. It executes programs.
type office struct {
	*agent.Agent[struct{}]
	w           *Observer
	incarnation int
	cycles      map[string]*cycle // the present one of each inbox
}

const offices dohost.Namespace[office] = "random-inbox"

// keep is the number of changes that the feed of the messages keeps.
const keep = 30

var (
	feed     = dohost.Feed{Name: "messages", Values: true, Before: true, Keep: keep}
	messages = inbox.Messages("messages", &feed)
	answers  = chat.StoredChunks("answers", nil) // of the cook's model
	streams  = chat.StoredChunks("streams", nil)
)

// maxNumber is the number of tasks and requests of a run: programs that are repeated make more in each run.
const maxNumber = 30

// Class returns the class of the object that executes programs.
func Class(w *Observer) dohost.Class {
	return agent.Bind(offices, func(ctx context.Context, base *agent.Agent[struct{}]) (*office, error) {
		o := &office{Agent: base, w: w, cycles: map[string]*cycle{}}
		m, err := o.read(ctx)
		if err != nil {
			return nil, err
		}
		o.incarnation = w.Wake(m.Serial)
		return o, nil
	}, nil, inboxEntries(w)...)
}

// run executes a program, as one event. It returns the version of the model.
func (o *office) run(ctx context.Context, p Program) (serial int, err error) {
	return p.Run(func(name string, list []Instr) error {
		return (&execution{office: o, name: name}).do(ctx, list)
	}, func() (int, error) {
		m, err := o.load(ctx)
		if err != nil {
			return 0, err
		}
		return m.Serial, nil
	})
}

// execution is the execution of a list of instructions.
type execution struct {
	*office
	name  string
	cycle string // the inbox whose cycle executes it
}

func (x *execution) do(ctx context.Context, list []Instr) error {
	return randtest.Execute(ctx, &x.w.StoredReport, x.name, list, Instr.control, x.step)
}

// step executes an instruction between two comparisons.
func (x *execution) step(ctx context.Context, name string, in Instr) error {
	x = &execution{office: x.office, name: name, cycle: x.cycle}
	m, err := x.load(ctx)
	if err == nil {
		err = x.execute(ctx, m, in)
	}
	if err == nil {
		x.w.Compared()
		_, err = x.load(ctx)
	}
	return err
}

func (x *execution) execute(ctx context.Context, m *model, in Instr) error {
	switch in.Op {
	case Send, Repeat, Shape, Put:
		if m.Next >= maxNumber {
			return nil
		}
		return x.insert(ctx, m, in)
	case Edit, Delete, Reinsert, Retry:
		return x.change(ctx, m, in)
	case Reply:
		return x.reply(ctx, m, in)
	case WaitReply:
		return x.waitReply(ctx, m, in)
	case Drain:
		return x.drain(ctx, in)
	case Stream:
		return x.stream(ctx, in)
	case Sleep:
		return dohost.Sleep(ctx, time.Duration(in.N)*time.Millisecond)
	case Sync:
		err := x.Storage().Sync(ctx)
		if err == nil {
			x.w.Acknowledge(m.Serial)
		}
		return err
	}
	return dohost.Await(ctx, func(context.Context) error { x.w.Acknowledge(m.Serial); return nil })
}

// modelKey is the key of the model.
const modelKey = "model"

// read reads the model.
func (o *office) read(ctx context.Context) (*model, error) {
	m := newModel()
	text, ok, err := dohost.Get[string](ctx, o.Storage(), modelKey)
	if err != nil || !ok {
		return m, err
	}
	return m, json.Unmarshal([]byte(text), m)
}

// load reads the model, and compares the object with it.
func (o *office) load(ctx context.Context) (*model, error) {
	m, err := o.read(ctx)
	if err != nil {
		return nil, err
	}
	return m, o.verify(ctx, m)
}

// save writes a new version of the model, without waiting, after the writes that it has in addition.
func (o *office) save(ctx context.Context, m *model) error {
	m.Serial++
	before := m.End
	var err error
	if m.End, err = feed.End(ctx, o.Storage()); err != nil {
		return err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	o.w.recordMoment(before, m)
	return dohost.Put(ctx, o.Storage(), modelKey, string(text))
}

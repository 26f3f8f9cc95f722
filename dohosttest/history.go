package dohosttest

import (
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
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/runtime"
)

// history is one run of a workload, as its clients saw it. It is written at a standstill,
// so it has the order of the run, although many events have the same time.
type history struct {
	x           *workload
	sub         subHistory
	run         *scenarioRun
	calls       []*call // by client, in the client's order
	events      []event
	endingsOver bool // no more endings
	drawn       int  // endings, also in the calls that sub omits
	err         error
}

// call is a call that a client has made, or was to make.
type call struct {
	name    callName
	in      any
	pause   time.Duration // before it
	outcome outcome
	out     any   // if answered
	err     error // if not answered
	began   int   // index in events
	ended   int
}

// callName is the number of a client, and the number of its call; both from 0.
type callName struct{ client, n int }

// outcome is the result of a call.
type outcome int

const (
	notMade  outcome = iota
	answered         // with out
	unknown          // it may have taken effect, or may yet do so
	notRun           // it did not run
)

// event is a call, its end, or an ending of objects.
type event struct {
	after  time.Duration
	call   *call // nil for an ending
	end    bool  // of the call
	ending int   // index of the ending
}

// instants bounds the milliseconds of a drawn pause: with few values, clients often act at
// the same instant.
const instants = 3

// try runs a sub-history of the workload, and returns its history.
func (x *workload) try(t *testing.T, p subHistory) *history {
	if x.reset != nil {
		x.reset()
	}
	h := &history{x: x, sub: p}
	for client := range p.clients + 1 {
		r := rand.New(rand.NewPCG(p.seed, uint64(client)))
		for n := range p.calls {
			pause := time.Duration(r.IntN(instants)) * time.Millisecond
			h.calls = append(h.calls, &call{name: callName{client, n}, in: x.draw(r), pause: pause})
		}
	}
	h.run = &scenarioRun{
		classes: x.classes, options: x.options, services: x.services,
		order: drawnOrder(p.seed), drawEnding: h.drawEnding,
	}
	h.run.share(x.sharedLog)
	h.err = h.run.runInBubble(t, h.runClients)
	if errors.Is(h.err, errStuck) {
		return &history{x: x, sub: p, run: &scenarioRun{}, err: h.err} // the other still belongs to its bubble
	}
	return h
}

// runClients runs the clients of the history, inside its scenarioRun.
func (h *history) runClients(_ context.Context, host *Host) error {
	var clients []*Client
	for n := range h.sub.clients {
		clients = append(clients, host.Client(func(ctx context.Context) error { return h.client(ctx, host, n) }))
	}
	var first error
	for _, c := range clients {
		if err := c.Wait(); first == nil {
			first = err
		}
	}
	if first != nil {
		return first
	}
	h.run.atStandstill(func() { h.endingsOver = true })
	h.run.checking.Store(true)
	if h.x.settleTime > 0 {
		host.Advance(h.x.settleTime)
	} else if err := host.WaitIdle(0); err != nil {
		return err
	}
	host.EvictAll()
	return host.Client(func(ctx context.Context) error { return h.client(ctx, host, h.sub.clients) }).Wait()
}

// client makes the calls of a client. It also sleeps for the pause of an omitted call.
func (h *history) client(ctx context.Context, host *Host, n int) error {
	for _, c := range h.calls[n*h.sub.calls : (n+1)*h.sub.calls] {
		time.Sleep(c.pause)
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if !h.sub.has(c.name) {
			continue
		}
		if err := h.make(ctx, host, c); err != nil {
			return err
		}
	}
	return nil
}

// make makes a call, and records its beginning and its end.
func (h *history) make(ctx context.Context, host *Host, c *call) error {
	h.atStep(ctx, eviction.PlaceSend, func() { c.began = h.add(event{call: c}) })
	out, err := h.x.do(ctx, host, c.in)
	fate, bad := outcomeOf(err)
	h.atStep(ctx, eviction.PlaceAnswer, func() {
		c.outcome, c.out, c.err = fate, out, err
		c.ended = h.add(event{call: c, end: true})
		if h.endingsOver && bad == nil && fate != answered {
			bad = fmt.Errorf("it has no answer, although interruptions have stopped: %w", err)
		}
	})
	if bad != nil {
		return fmt.Errorf("%v of client %d: %w", c.in, c.name.client, bad)
	}
	return nil
}

// atStep calls f at a standstill, at the client's step.
func (h *history) atStep(ctx context.Context, p eviction.Place, f func()) {
	h.run.sched.ask(&stepRequest{point: runtime.Point{Place: p, Ctx: ctx}, do: f})
}

// add appends an event, and returns its index.
func (h *history) add(e event) int {
	e.after = time.Since(h.run.began)
	h.events = append(h.events, e)
	return len(h.events) - 1
}

// outcomeOf classifies a call that ended with err, or returns a fault of the workload.
func outcomeOf(err error) (outcome, error) {
	if err == nil {
		return answered, nil
	}
	e, ok := errors.AsType[*dohost.Error](err)
	own := errors.Is(err, dohost.ErrFenced) || errors.Is(err, runtime.ErrConstructor)
	switch {
	case !ok:
		return unknown, err
	case own && !byEnding(err):
		return unknown, fmt.Errorf("the object ended its own incarnation; if that is intended, Do must return it in Out: %w", err)
	case e.Outcome == dohost.OutcomeNotRun:
		return notRun, nil
	case e.Outcome == dohost.OutcomeUnknown, errors.Is(err, dohost.ErrFenced), errors.Is(err, dohost.ErrClosed), errors.Is(err, runtime.ErrConstructor):
		return unknown, nil
	}
	return unknown, fmt.Errorf("the method returned an error; an error is an answer, so Do must return it in Out: %w", err)
}

// drawEnding returns the ending at a point, or None: a pure function of the seed and the point.
func (h *history) drawEnding(p Point) dohost.EndMode {
	if h.endingsOver {
		return eviction.EndNone
	}
	r := rand.New(rand.NewPCG(h.sub.seed, hashOf(p.Object, p.name())))
	draw, ending := r.Float64(), h.x.kinds[r.IntN(len(h.x.kinds))]
	if draw >= h.x.chance || !canEnd(ending, p) {
		return eviction.EndNone
	}
	h.drawn++
	if !h.sub.hasEnding(h.drawn - 1) {
		return eviction.EndNone
	}
	h.add(event{ending: len(h.run.endings)})
	return ending
}

// differAt returns an error with the first difference of two histories of one sub-history.
func differAt(a, b *history) error {
	for i := range max(len(a.events), len(b.events)) {
		was, is := "the end", "the end"
		if i < len(a.events) {
			was = a.describe(a.events[i])
		}
		if i < len(b.events) {
			is = b.describe(b.events[i])
		}
		if i >= len(a.events) || i >= len(b.events) || !a.agree(a.events[i], b, b.events[i]) {
			return fmt.Errorf("%w: of two runs of seed %d, the first has %q where the second has %q; "+
				"if the first run left state, Reset must recreate it", errNotDeterministic, a.sub.seed, was, is)
		}
	}
	return nil
}

func (h *history) agree(e event, o *history, f event) bool {
	if e.after != f.after || e.end != f.end || (e.call == nil) != (f.call == nil) {
		return false
	}
	if e.call == nil {
		return h.run.endings[e.ending] == o.run.endings[f.ending]
	}
	same := e.call.name == f.call.name && e.call.outcome == f.call.outcome && reflect.DeepEqual(e.call.in, f.call.in)
	return same && (!e.end || reflect.DeepEqual(e.call.out, f.call.out))
}

// overlaps counts the pairs of answered calls of one object that overlap.
func (h *history) overlaps() (n int) {
	var open []*call
	for _, e := range h.events {
		switch {
		case e.call == nil || e.call.outcome != answered:
		case e.end:
			open = slices.DeleteFunc(open, func(c *call) bool { return c == e.call })
		default:
			for _, c := range open {
				if h.x.object(c.in) == h.x.object(e.call.in) {
					n++
				}
			}
			open = append(open, e.call)
		}
	}
	return n
}

// table formats the history for a person: a line for each event, and a column for each
// client.
func (h *history) table() string {
	var b strings.Builder
	columns := map[int]int{}
	var cells []string
	for client := range h.sub.clients + 1 {
		if slices.ContainsFunc(h.events, func(e event) bool { return e.call != nil && e.call.name.client == client }) {
			columns[client] = len(cells)
			cells = append(cells, " ")
		}
	}
	for _, e := range h.events {
		var after string
		if e.call != nil {
			at := columns[e.call.name.client]
			cells[at], after = "┌", "│"
			if e.end {
				cells[at], after = "└", " "
			}
			if e.end && e.call.outcome == unknown {
				cells[at] = "?"
			}
		}
		fmt.Fprintf(&b, "%10v  %s  %s\n", e.after, strings.Join(cells, " "), h.describe(e))
		if e.call != nil {
			cells[columns[e.call.name.client]] = after
		}
	}
	return b.String()
}

// describe formats an event as a line.
func (h *history) describe(e event) string {
	if e.call == nil {
		s := h.run.endings[e.ending]
		text := fmt.Sprintf("%v at the place %q of %v, event %s", s.Ending, s.Point.Place, s.Point.Object, s.Point.Op)
		if s.Point.Site != "" {
			text += ", " + s.Point.Site
		}
		return text
	}
	who := fmt.Sprintf("client %d", e.call.name.client)
	switch {
	case !e.end:
		return fmt.Sprintf("%s calls %v", who, e.call.in)
	case e.call.outcome == answered:
		return fmt.Sprintf("%s gets %v from %v", who, e.call.out, e.call.in)
	case e.call.outcome == notRun:
		return fmt.Sprintf("%s: %v did not run: %v", who, e.call.in, e.call.err)
	}
	return fmt.Sprintf("%s: the outcome of %v is unknown: %v", who, e.call.in, e.call.err)
}

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

// heartbeat is the interval of the alarms of an agent that is kept alive.
const heartbeat = 20 * time.Second

// keepAliveRecord counts the holds that keep the incarnations of an agent alive.
type keepAliveRecord struct {
	mu           sync.Mutex
	incarnations int // constructors
	holds        int // of the newest incarnation
	faults       []error
}

func (v *keepAliveRecord) reset() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.incarnations, v.holds, v.faults = 0, 0, nil
}

// begin numbers an incarnation, which has no holds yet.
func (v *keepAliveRecord) begin() (incarnation int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.incarnations++
	v.holds = 0
	return v.incarnations
}

// addHolds changes the number of holds of an incarnation.
func (v *keepAliveRecord) addHolds(incarnation, by int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if incarnation == v.incarnations {
		v.holds += by
	}
}

// held returns the number of holds of the newest incarnation, or at its end.
func (v *keepAliveRecord) held() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.holds
}

// onFenced records the end of an incarnation, which must not be idle eviction while it has holds.
func (v *keepAliveRecord) onFenced(e dohost.Ended) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e.Cause.Reason == "idle" && v.holds > 0 {
		v.faults = append(v.faults, fmt.Errorf("incarnation %d was evicted as idle, although %d holds keep it alive", v.incarnations, v.holds))
	}
}

func (v *keepAliveRecord) addFault(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults = append(v.faults, err)
}

func (v *keepAliveRecord) err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return errors.Join(v.faults...)
}

// keptAliveAgent is an agent that is kept alive by holds, and by work that it has to finish.
type keptAliveAgent struct {
	*agent.Agent[none]
	record      *keepAliveRecord
	incarnation int
	releases    []func(context.Context) error // to release them
}

var keptAliveAgents dohost.Namespace[keptAliveAgent] = "kept-alive"

// checkAlarm returns an error if the agent is kept alive and no alarm will wake it in time.
func (l *keptAliveAgent) checkAlarm(ctx context.Context) error {
	at, set, err := l.Object().GetAlarm(ctx)
	by := time.Now().Add(heartbeat + time.Millisecond) // alarms are rounded to milliseconds
	if err == nil && l.record.held() > 0 && (!set || at.After(by)) {
		err = fmt.Errorf("incarnation %d is kept alive, but its alarm (set: %t) is due at %v: want at most %v", l.incarnation, set, at, by)
	}
	return err
}

// addHold adds a hold.
func (l *keptAliveAgent) addHold(ctx context.Context, _ none) (none, error) {
	release, err := l.KeepAlive(ctx)
	if err != nil {
		return none{}, err
	}
	l.record.addHolds(l.incarnation, 1)
	l.releases = append(l.releases, release)
	return none{}, l.checkAlarm(ctx)
}

// releaseHold releases a hold, twice. A hold of an earlier incarnation has ended already.
func (l *keptAliveAgent) releaseHold(ctx context.Context, _ none) (none, error) {
	if len(l.releases) == 0 {
		return none{}, nil
	}
	goes := l.releases[0]
	l.releases = l.releases[1:]
	if err := errors.Join(goes(ctx), goes(ctx)); err != nil {
		return none{}, err
	}
	l.record.addHolds(l.incarnation, -1)
	return none{}, l.checkAlarm(ctx)
}

// startWork starts the work of the agent.
func (l *keptAliveAgent) startWork(ctx context.Context, _ none) (none, error) {
	return none{}, errors.Join(dohost.Put(ctx, l.Storage(), "round", "begun"), l.runWork(ctx))
}

// resumeWork repeats work that an earlier incarnation has not finished.
func (l *keptAliveAgent) resumeWork(ctx context.Context) error {
	round, _, err := dohost.Get[string](ctx, l.Storage(), "round")
	if err != nil || round != "begun" {
		return err
	}
	return l.runWork(ctx)
}

// runWork does the work. Only KeepAlive wakes the agent for it.
func (l *keptAliveAgent) runWork(ctx context.Context) error {
	release, err := l.KeepAlive(ctx)
	if err != nil {
		return err
	}
	return l.Object().Go(ctx, "round", func(ctx context.Context) error {
		err := agent.KeepAliveWhile(ctx, l, func(ctx context.Context) error {
			l.record.addHolds(l.incarnation, 1)
			defer l.record.addHolds(l.incarnation, -1)
			if err := dohost.Sleep(ctx, 2*heartbeat+time.Second); err != nil {
				return err
			}
			err := l.checkAlarm(ctx)
			if errors.Is(err, dohost.ErrFenced) {
				return err
			}
			if err != nil {
				l.record.addFault(err)
			}
			return dohost.Put(ctx, l.Storage(), "round", "done")
		})
		return errors.Join(err, release(ctx))
	})
}

func (l *keptAliveAgent) workState(ctx context.Context, _ none) (round string, err error) {
	round, _, err = dohost.Get[string](ctx, l.Storage(), "round")
	return round, err
}

// awaitState waits until the agent is in memory if it has holds, and out of memory if it has
// none. The successor of an incarnation that was ended with holds has none.
func (v *keepAliveRecord) awaitState(h *dohosttest.Host) error {
	for range 5 {
		h.Advance(2*heartbeat + time.Second)
		if h.Host().IsLive(keptAliveAgents.Get(h, "a").ID()) == (v.held() > 0) {
			return nil
		}
	}
	return fmt.Errorf("incarnation %d has %d holds: want the incarnation in memory exactly while it has holds", v.incarnations, v.held())
}

// runKeptAlive adds and releases two holds, and then starts work that no call waits for.
func runKeptAlive(ctx context.Context, h *dohosttest.Host, v *keepAliveRecord) error {
	at := keptAliveAgents.Get(h, "a")
	for _, m := range []func(*keptAliveAgent, context.Context, none) (none, error){
		(*keptAliveAgent).addHold, (*keptAliveAgent).addHold, (*keptAliveAgent).releaseHold, (*keptAliveAgent).releaseHold,
	} {
		if _, err := retryCall(ctx, at, m, none{}); err != nil {
			return err
		}
		if err := v.awaitState(h); err != nil {
			return err
		}
	}
	_, err := dohost.Call(ctx, at, (*keptAliveAgent).startWork, none{})
	return err
}

// newKeptAlive has an agent that is kept alive.
func newKeptAlive() dohosttest.Scenario {
	v := new(keepAliveRecord)
	sent := false
	return dohosttest.Scenario{
		Classes: []dohost.Class{agent.Bind(keptAliveAgents, func(_ context.Context, a *agent.Agent[none]) (*keptAliveAgent, error) {
			return &keptAliveAgent{Agent: a, record: v, incarnation: v.begin()}, nil
		}, &agent.Handlers[keptAliveAgent, none]{
			OnStart: (*keptAliveAgent).resumeWork,
			Options: agent.Options{KeepAlive: heartbeat},
		})},
		Options: dohost.Options{IdleAfter: 5 * time.Second, Listener: dohost.Listener{Fenced: v.onFenced}},
		Reset:   func() { v.reset(); sent = false },
		Places:  agentPlaces,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			err := runKeptAlive(ctx, h, v)
			sent = err == nil
			return err
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			round, err := dohost.Call(ctx, keptAliveAgents.Get(h, "a"), (*keptAliveAgent).workState, none{})
			if sent || round != "" { // a round that has begun must complete
				err = errors.Join(err, differ("the round", round, "done"))
			}
			return errors.Join(err, v.err())
		},
	}
}

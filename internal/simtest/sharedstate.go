package simtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// numberedState is a state. All tries have different values of By, so a lost state does not return.
type numberedState struct {
	N  int
	By string
}

// stateAgent is an agent with numbered states.
type stateAgent struct {
	*agent.Agent[numberedState]
	observed *observedStates
}

var stateAgents dohost.Namespace[stateAgent] = "shared-state"

func (s *stateAgent) validate(ctx context.Context, next numberedState, _ *agent.Conn) error {
	now, err := s.State(ctx)
	return errors.Join(err, differ("the state", next.N, now.N+1))
}

func (s *stateAgent) changed(_ context.Context, p numberedState, _ *agent.Conn) error {
	return s.observed.observeChange(p)
}

// setNext sets the next state, unless it is set.
func (s *stateAgent) setNext(ctx context.Context, next numberedState) (numberedState, error) {
	now, err := s.State(ctx)
	if err != nil || now.N >= next.N {
		return now, err
	}
	return next, s.SetState(ctx, next)
}

func (s *stateAgent) page(ctx context.Context, _ none) (numberedState, error) { return s.State(ctx) }

// observedStates are the states that clients received. All clients must agree on them.
type observedStates struct {
	mu       sync.Mutex
	byNumber map[int]string
	newest   int
	notified []int // by OnStateChanged
	tries    int
	ended    bool // an incarnation, perhaps before its OnStateChanged
	fault    error
}

func (e *observedStates) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.byNumber, e.newest, e.notified, e.tries, e.ended, e.fault = map[int]string{0: ""}, 0, nil, 0, false, nil
}

// observe records a state that a client received.
func (e *observedStates) observe(p numberedState) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if by, ok := e.byNumber[p.N]; ok && by != p.By {
		return fmt.Errorf("state %d came from try %q, and now from %q", p.N, by, p.By)
	}
	e.byNumber[p.N] = p.By
	e.newest = max(e.newest, p.N)
	return nil
}

// observeChange records a state that OnStateChanged received, in order.
func (e *observedStates) observeChange(p numberedState) error {
	err := e.observe(p)
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.notified); n > 0 && e.notified[n-1] >= p.N {
		err = errors.Join(err, fmt.Errorf("OnStateChanged is called with state %d after %d", p.N, e.notified[n-1]))
	}
	e.notified = append(e.notified, p.N)
	e.fault = errors.Join(e.fault, err)
	return err
}

// onFenced records that an incarnation was ended.
func (e *observedStates) onFenced(end dohost.Ended) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = e.ended || end.Cause.Reason != "idle"
}

// err returns the faults, such as a call of OnStateChanged that is missing or out of order.
func (e *observedStates) err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return e.fault
	}
	return errors.Join(e.fault, differ("the states that OnStateChanged was called with", len(e.notified), lastState))
}

// newestObserved returns the newest received state: a new client must not receive an older one.
func (e *observedStates) newestObserved() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.newest
}

// nextTry returns a state that has not been tried before.
func (e *observedStates) nextTry(n int) numberedState {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tries++
	return numberedState{n, fmt.Sprint(e.tries)}
}

// frame is a frame from an agent to its client.
type frame struct {
	Type    string
	State   numberedState
	Success bool
	Result  numberedState
}

// stateClient is a client of a stateAgent.
type stateClient struct {
	*socketClient
	observed *observedStates
	now      numberedState // the last received state
	fresh    bool          // nothing received on this connection yet
	own      numberedState // its own last try on this connection, if N is not zero: the agent must not send it back
}

func newStateClient(h *dohosttest.Host, e *observedStates) *stateClient {
	return &stateClient{socketClient: &socketClient{h: h, id: stateAgents.Get(h, "a").ID(), path: "/"}, observed: e}
}

// next reads a frame. It returns false if there was none: then the client has reconnected.
func (v *stateClient) next(ctx context.Context) (f frame, ok bool, err error) {
	if v.ws == nil {
		v.now.N, v.fresh, v.own = max(v.now.N, v.observed.newestObserved()), true, numberedState{}
		return f, false, v.connect(ctx)
	}
	line, ok, err := v.receive(ctx)
	if err != nil || !ok {
		return f, false, err
	}
	if err := json.Unmarshal([]byte(line), &f); err != nil {
		return f, false, err
	}
	switch {
	case f.Type == "cf_agent_state" && v.own.N > 0 && f.State == v.own:
		err = fmt.Errorf("a client received its own change %+v", f.State)
	case f.Type == "cf_agent_state":
		err = v.observe(f.State)
	case f.Type == "rpc" && !f.Success:
		err = fmt.Errorf("a call fails: %s", line)
	case f.Type == "rpc":
		err = v.observe(f.Result)
	}
	return f, true, err
}

// observe records a received state, which must not be older than the last one.
func (v *stateClient) observe(p numberedState) error {
	if p.N < v.now.N {
		return fmt.Errorf("a client received state %d after %d", p.N, v.now.N)
	}
	v.now, v.fresh = p, false
	return v.observed.observe(p)
}

// readUntil reads frames until done accepts one; again means that the connection has ended before.
func (v *stateClient) readUntil(ctx context.Context, done func(frame) bool) (again bool, err error) {
	for {
		f, ok, err := v.next(ctx)
		if err != nil || !ok {
			return true, err
		}
		if done(f) {
			return false, nil
		}
	}
}

func isState(f frame) bool  { return f.Type == "cf_agent_state" }
func isAnswer(f frame) bool { return f.Type == "rpc" }

// ready returns when the client is connected, and has received the state.
func (v *stateClient) ready(ctx context.Context) error {
	for v.ws == nil || v.fresh {
		if _, err := v.readUntil(ctx, isState); err != nil {
			return err
		}
	}
	return nil
}

// write sends the state n until it is set, by this try or by an earlier one.
func (v *stateClient) write(ctx context.Context, n int) error {
	for {
		if err := v.ready(ctx); err != nil || v.now.N >= n {
			return err
		}
		v.own = v.observed.nextTry(n)
		v.send(ctx, fmt.Sprintf(`{"type":"cf_agent_state","state":{"N":%d,"By":%q}}`, n, v.own.By))
		v.send(ctx, `{"type":"rpc","id":"1","method":"page","args":[{}]}`)
		again, err := v.readUntil(ctx, isAnswer)
		if err != nil {
			return err
		}
		if !again {
			return differ("the state that was sent", v.now.N, n)
		}
	}
}

// sendInvalid sends an invalid state, until it is refused.
func (v *stateClient) sendInvalid(ctx context.Context) error {
	for {
		if err := v.ready(ctx); err != nil {
			return err
		}
		v.send(ctx, `{"type":"cf_agent_state","state":{"N":100,"By":"nobody"}}`)
		if again, err := v.readUntil(ctx, func(f frame) bool { return f.Type == "cf_agent_state_error" }); err != nil || !again {
			return err
		}
	}
}

// setByCall calls the agent to set the state n, until it is set. The caller receives the state before the answer.
func (v *stateClient) setByCall(ctx context.Context, n int) error {
	for {
		if err := v.ready(ctx); err != nil || v.now.N >= n {
			return err
		}
		seen := false
		v.send(ctx, fmt.Sprintf(`{"type":"rpc","id":"1","method":"amend","args":[{"N":%d,"By":%q}]}`, n, v.observed.nextTry(n).By))
		again, err := v.readUntil(ctx, func(f frame) bool {
			seen = seen || isState(f) && f.State.N == n
			return isAnswer(f)
		})
		if err != nil {
			return err
		}
		if !again {
			return errors.Join(differ("the state that was set", v.now.N, n), differ("shown before the answer", seen, true))
		}
	}
}

// lastState is the last state.
const lastState = 2

// runSharedState runs one client that changes the state, and another that watches.
func runSharedState(ctx context.Context, h *dohosttest.Host, e *observedStates) error {
	watcher := h.Client(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Hour) // in case nothing more arrives
		defer cancel()
		v := newStateClient(h, e)
		defer v.close()
		for v.now.N < lastState || v.fresh {
			if _, _, err := v.next(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	v := newStateClient(h, e)
	defer v.close()
	err := v.write(ctx, 1)
	if err == nil {
		err = v.sendInvalid(ctx)
	}
	if err == nil {
		h.Advance(15 * time.Second) // the agent leaves memory
		err = v.setByCall(ctx, lastState)
	}
	return errors.Join(err, watcher.Wait())
}

// newSharedState has clients with a shared state.
func newSharedState() dohosttest.Scenario {
	e := new(observedStates)
	return dohosttest.Scenario{
		Classes: []dohost.Class{agent.Bind(stateAgents, func(_ context.Context, a *agent.Agent[numberedState]) (*stateAgent, error) {
			return &stateAgent{a, e}, nil
		}, &agent.Handlers[stateAgent, numberedState]{
			Initial:        &numberedState{},
			Validate:       (*stateAgent).validate,
			OnStateChanged: (*stateAgent).changed,
		},
			agent.Callable("page", (*stateAgent).page), agent.Callable("amend", (*stateAgent).setNext))},
		Options: dohost.Options{IdleAfter: 10 * time.Second, Listener: dohost.Listener{Fenced: e.onFenced}},
		Reset:   e.reset,
		Places:  agentPlaces,
		Run:     func(ctx context.Context, h *dohosttest.Host) error { return runSharedState(ctx, h, e) },
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			p, err := dohost.Call(ctx, stateAgents.Get(h, "a"), (*stateAgent).page, none{})
			return errors.Join(err, e.observe(p), differ("the state", p.N, lastState), e.err())
		},
	}
}

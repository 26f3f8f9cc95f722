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

// page is a state. All tries have different values of By, so a lost state does not return.
type page struct {
	N  int
	By string
}

// slate is an agent with numbered states.
type slate struct {
	*agent.Agent[page]
	pages *exhibits
}

var slates dohost.Namespace[slate] = "slate"

func (s *slate) validate(ctx context.Context, next page, _ *agent.Conn) error {
	now, err := s.State(ctx)
	return errors.Join(err, differ("the state", next.N, now.N+1))
}

func (s *slate) changed(_ context.Context, p page, _ *agent.Conn) error {
	return s.pages.tell(p)
}

// amend sets the next state, unless it is set.
func (s *slate) amend(ctx context.Context, next page) (page, error) {
	now, err := s.State(ctx)
	if err != nil || now.N >= next.N {
		return now, err
	}
	return next, s.SetState(ctx, next)
}

func (s *slate) page(ctx context.Context, _ none) (page, error) { return s.State(ctx) }

// exhibits are the states that clients received. All clients must agree on them.
type exhibits struct {
	mu     sync.Mutex
	shown  map[int]string
	newest int
	told   []int // by OnStateChanged
	tried  int
	ended  bool // an incarnation, perhaps before its OnStateChanged
	fault  error
}

func (e *exhibits) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shown, e.newest, e.told, e.tried, e.ended, e.fault = map[int]string{0: ""}, 0, nil, 0, false, nil
}

// show records a state that a client received.
func (e *exhibits) show(p page) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if by, ok := e.shown[p.N]; ok && by != p.By {
		return fmt.Errorf("state %d was shown as that of try %q, and is shown as that of %q", p.N, by, p.By)
	}
	e.shown[p.N] = p.By
	e.newest = max(e.newest, p.N)
	return nil
}

// tell records a state that OnStateChanged received, in order.
func (e *exhibits) tell(p page) error {
	err := e.show(p)
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.told); n > 0 && e.told[n-1] >= p.N {
		err = errors.Join(err, fmt.Errorf("OnStateChanged is told of state %d after %d", p.N, e.told[n-1]))
	}
	e.told = append(e.told, p.N)
	e.fault = errors.Join(e.fault, err)
	return err
}

// end records that an incarnation was ended.
func (e *exhibits) end(end dohost.Ended) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = e.ended || end.Why.Reason != "idle"
}

// wrong returns the faults, such as a call of OnStateChanged that is missing or out of order.
func (e *exhibits) wrong() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return e.fault
	}
	return errors.Join(e.fault, differ("the states that OnStateChanged was told of", len(e.told), lastPage))
}

// floor returns the newest received state: a new client must not receive an older one.
func (e *exhibits) floor() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.newest
}

// try returns a state that has not been tried before.
func (e *exhibits) try(n int) page {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tried++
	return page{n, fmt.Sprint(e.tried)}
}

// frame is a frame from an agent to its client.
type frame struct {
	Type    string
	State   page
	Success bool
	Result  page
}

// viewer is a client of a slate.
type viewer struct {
	*visitor
	pages *exhibits
	now   page // the last received state
	fresh bool // nothing received on this connection yet
	mine  page // its own last try on this connection, if N is not zero: the agent must not send it back
}

func newViewer(h *dohosttest.Host, e *exhibits) *viewer {
	return &viewer{visitor: &visitor{h: h, id: slates.Get(h, "a").ID(), path: "/"}, pages: e}
}

// next reads a frame. It returns false if there was none: then the viewer has reconnected.
func (v *viewer) next(ctx context.Context) (f frame, ok bool, err error) {
	if v.ws == nil {
		v.now.N, v.fresh, v.mine = max(v.now.N, v.pages.floor()), true, page{}
		return f, false, v.connect(ctx)
	}
	line, ok, err := v.hear(ctx)
	if err != nil || !ok {
		return f, false, err
	}
	if err := json.Unmarshal([]byte(line), &f); err != nil {
		return f, false, err
	}
	switch {
	case f.Type == "cf_agent_state" && v.mine.N > 0 && f.State == v.mine:
		err = fmt.Errorf("a client is shown its own change %+v", f.State)
	case f.Type == "cf_agent_state":
		err = v.show(f.State)
	case f.Type == "rpc" && !f.Success:
		err = fmt.Errorf("a call fails: %s", line)
	case f.Type == "rpc":
		err = v.show(f.Result)
	}
	return f, true, err
}

// show records a received state, which must not be older than the last one.
func (v *viewer) show(p page) error {
	if p.N < v.now.N {
		return fmt.Errorf("a client is shown state %d after %d", p.N, v.now.N)
	}
	v.now, v.fresh = p, false
	return v.pages.show(p)
}

// until reads frames until done accepts one; again means that the connection has ended before.
func (v *viewer) until(ctx context.Context, done func(frame) bool) (again bool, err error) {
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

// ready returns when the viewer is connected, and has received the state.
func (v *viewer) ready(ctx context.Context) error {
	for v.ws == nil || v.fresh {
		if _, err := v.until(ctx, isState); err != nil {
			return err
		}
	}
	return nil
}

// write sends the state n until it is set, by this try or by an earlier one.
func (v *viewer) write(ctx context.Context, n int) error {
	for {
		if err := v.ready(ctx); err != nil || v.now.N >= n {
			return err
		}
		v.mine = v.pages.try(n)
		v.say(ctx, fmt.Sprintf(`{"type":"cf_agent_state","state":{"N":%d,"By":%q}}`, n, v.mine.By))
		v.say(ctx, `{"type":"rpc","id":"1","method":"page","args":[{}]}`)
		again, err := v.until(ctx, isAnswer)
		if err != nil {
			return err
		}
		if !again {
			return differ("the state that was sent", v.now.N, n)
		}
	}
}

// refused sends an invalid state, until it is refused.
func (v *viewer) refused(ctx context.Context) error {
	for {
		if err := v.ready(ctx); err != nil {
			return err
		}
		v.say(ctx, `{"type":"cf_agent_state","state":{"N":100,"By":"nobody"}}`)
		if again, err := v.until(ctx, func(f frame) bool { return f.Type == "cf_agent_state_error" }); err != nil || !again {
			return err
		}
	}
}

// amend calls the agent to set the state n, until it is set. The caller receives the state before the answer.
func (v *viewer) amend(ctx context.Context, n int) error {
	for {
		if err := v.ready(ctx); err != nil || v.now.N >= n {
			return err
		}
		seen := false
		v.say(ctx, fmt.Sprintf(`{"type":"rpc","id":"1","method":"amend","args":[{"N":%d,"By":%q}]}`, n, v.pages.try(n).By))
		again, err := v.until(ctx, func(f frame) bool {
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

// lastPage is the last state.
const lastPage = 2

// share runs one client that changes the state, and another that watches.
func share(ctx context.Context, h *dohosttest.Host, e *exhibits) error {
	watcher := h.Client(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Hour) // in case nothing more arrives
		defer cancel()
		v := newViewer(h, e)
		defer v.leave()
		for v.now.N < lastPage || v.fresh {
			if _, _, err := v.next(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	v := newViewer(h, e)
	defer v.leave()
	err := v.write(ctx, 1)
	if err == nil {
		err = v.refused(ctx)
	}
	if err == nil {
		h.Advance(15 * time.Second) // the agent leaves memory
		err = v.amend(ctx, lastPage)
	}
	return errors.Join(err, watcher.Wait())
}

// newSharing has clients with a shared state.
func newSharing() dohosttest.Scenario {
	e := new(exhibits)
	return dohosttest.Scenario{
		Classes: []dohost.Class{agent.Bind(slates, func(_ context.Context, a *agent.Agent[page]) (*slate, error) {
			return &slate{a, e}, nil
		}, &agent.Handlers[slate, page]{
			Initial:        &page{},
			Validate:       (*slate).validate,
			OnStateChanged: (*slate).changed,
		},
			agent.Callable("page", (*slate).page), agent.Callable("amend", (*slate).amend))},
		Options: dohost.Options{IdleAfter: 10 * time.Second, Listener: dohost.Listener{Fenced: e.end}},
		Reset:   e.reset,
		Places:  landings,
		Run:     func(ctx context.Context, h *dohosttest.Host) error { return share(ctx, h, e) },
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			p, err := dohost.Call(ctx, slates.Get(h, "a"), (*slate).page, none{})
			return errors.Join(err, e.show(p), differ("the state", p.N, lastPage), e.wrong())
		},
	}
}

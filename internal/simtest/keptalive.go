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

// heartbeat is the interval of the alarms of a lodge that is kept alive.
const heartbeat = 20 * time.Second

// vigil counts the holds that keep the incarnations of a lodge alive.
type vigil struct {
	mu     sync.Mutex
	lives  int // constructors
	holds  int // of the newest incarnation
	faults []error
}

func (v *vigil) reset() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lives, v.holds, v.faults = 0, 0, nil
}

// begin numbers an incarnation, which has no holds yet.
func (v *vigil) begin() (life int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lives++
	v.holds = 0
	return v.lives
}

// hold changes the number of holds of an incarnation.
func (v *vigil) hold(life, by int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if life == v.lives {
		v.holds += by
	}
}

// held returns the number of holds of the newest incarnation, or at its end.
func (v *vigil) held() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.holds
}

// end records the end of an incarnation, which must not be idle eviction while it has holds.
func (v *vigil) end(e dohost.Ended) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e.Why.Reason == "idle" && v.holds > 0 {
		v.faults = append(v.faults, fmt.Errorf("life %d was idle, and %d keep it alive", v.lives, v.holds))
	}
}

func (v *vigil) fault(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults = append(v.faults, err)
}

func (v *vigil) wrong() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return errors.Join(v.faults...)
}

// lodge is an agent that is kept alive by guests, and by a round that it has to finish.
type lodge struct {
	*agent.Agent[none]
	vigil  *vigil
	life   int
	guests []func(context.Context) error // to release them
}

var lodges dohost.Namespace[lodge] = "lodge"

// awake returns an error if the lodge is kept alive and no alarm will wake it in time.
func (l *lodge) awake(ctx context.Context) error {
	at, set, err := l.Object().GetAlarm(ctx)
	by := time.Now().Add(heartbeat + time.Millisecond) // alarms are rounded to milliseconds
	if err == nil && l.vigil.held() > 0 && (!set || at.After(by)) {
		err = fmt.Errorf("life %d is kept alive, and the alarm is set (%t) for %v, not by %v", l.life, set, at, by)
	}
	return err
}

// enter adds a guest.
func (l *lodge) enter(ctx context.Context, _ none) (none, error) {
	release, err := l.KeepAlive(ctx)
	if err != nil {
		return none{}, err
	}
	l.vigil.hold(l.life, 1)
	l.guests = append(l.guests, release)
	return none{}, l.awake(ctx)
}

// leave releases a guest, twice. A guest of an earlier incarnation is gone already.
func (l *lodge) leave(ctx context.Context, _ none) (none, error) {
	if len(l.guests) == 0 {
		return none{}, nil
	}
	goes := l.guests[0]
	l.guests = l.guests[1:]
	if err := errors.Join(goes(ctx), goes(ctx)); err != nil {
		return none{}, err
	}
	l.vigil.hold(l.life, -1)
	return none{}, l.awake(ctx)
}

// send starts the round of the lodge.
func (l *lodge) send(ctx context.Context, _ none) (none, error) {
	return none{}, errors.Join(dohost.Put(ctx, l.Storage(), "round", "begun"), l.round(ctx))
}

// goOn repeats a round that an earlier incarnation has not finished.
func (l *lodge) goOn(ctx context.Context) error {
	round, _, err := dohost.Get[string](ctx, l.Storage(), "round")
	if err != nil || round != "begun" {
		return err
	}
	return l.round(ctx)
}

// round does the round. Only KeepAlive wakes the lodge for it.
func (l *lodge) round(ctx context.Context) error {
	release, err := l.KeepAlive(ctx)
	if err != nil {
		return err
	}
	return l.Object().Go(ctx, "round", func(ctx context.Context) error {
		err := agent.KeepAliveWhile(ctx, l, func(ctx context.Context) error {
			l.vigil.hold(l.life, 1)
			defer l.vigil.hold(l.life, -1)
			if err := dohost.Sleep(ctx, 2*heartbeat+time.Second); err != nil {
				return err
			}
			if err := l.awake(ctx); err != nil {
				l.vigil.fault(err)
			}
			return dohost.Put(ctx, l.Storage(), "round", "done")
		})
		return errors.Join(err, release(ctx))
	})
}

func (l *lodge) rounds(ctx context.Context, _ none) (round string, err error) {
	round, _, err = dohost.Get[string](ctx, l.Storage(), "round")
	return round, err
}

// comesTo waits until the lodge is in memory if it has holds, and out of memory if it has
// none. The successor of an incarnation that was ended with holds has none.
func (v *vigil) comesTo(h *dohosttest.Host) error {
	for range 5 {
		h.Advance(2*heartbeat + time.Second)
		if h.Host().IsLive(lodges.Get(h, "a").ID()) == (v.held() > 0) {
			return nil
		}
	}
	return fmt.Errorf("life %d is kept alive by %d, and that is not so", v.lives, v.held())
}

// stayAt lets two guests come and leave, and then starts a round that no call waits for.
func stayAt(ctx context.Context, h *dohosttest.Host, v *vigil) error {
	at := lodges.Get(h, "a")
	for _, m := range []func(*lodge, context.Context, none) (none, error){
		(*lodge).enter, (*lodge).enter, (*lodge).leave, (*lodge).leave,
	} {
		if _, err := ask(ctx, at, m, none{}); err != nil {
			return err
		}
		if err := v.comesTo(h); err != nil {
			return err
		}
	}
	_, err := dohost.Call(ctx, at, (*lodge).send, none{})
	return err
}

// newKeeping has an agent that is kept alive.
func newKeeping() dohosttest.Scenario {
	v := new(vigil)
	sent := false
	return dohosttest.Scenario{
		Classes: []dohost.Class{agent.Bind(lodges, func(_ context.Context, a *agent.Agent[none]) (*lodge, error) {
			return &lodge{Agent: a, vigil: v, life: v.begin()}, nil
		}, &agent.Handlers[lodge, none]{
			OnStart: (*lodge).goOn,
			Options: agent.Options{KeepAlive: heartbeat},
		})},
		Options: dohost.Options{IdleAfter: 5 * time.Second, Listener: dohost.Listener{Fenced: v.end}},
		Reset:   func() { v.reset(); sent = false },
		Places:  landings,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			err := stayAt(ctx, h, v)
			sent = err == nil
			return err
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			round, err := dohost.Call(ctx, lodges.Get(h, "a"), (*lodge).rounds, none{})
			if sent || round != "" { // a round that has begun must complete
				err = errors.Join(err, differ("the round", round, "done"))
			}
			return errors.Join(err, v.wrong())
		},
	}
}

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

// heartbeat is how long a lodge that is kept alive waits before it looks after itself again.
const heartbeat = 20 * time.Second

// vigil counts who keeps the incarnations of a lodge alive.
type vigil struct {
	mu     sync.Mutex
	lives  int // constructors
	holds  int // of the newest life
	faults []error
}

func (v *vigil) reset() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lives, v.holds, v.faults = 0, 0, nil
}

// begin numbers a life, which nobody keeps alive.
func (v *vigil) begin() (life int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lives++
	v.holds = 0
	return v.lives
}

// hold counts one more, or one less, who keeps a life alive.
func (v *vigil) hold(life, by int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if life == v.lives {
		v.holds += by
	}
}

// held is how many keep the newest life alive, or kept it until its end.
func (v *vigil) held() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.holds
}

// end notes that a life has ended, which must not be for want of work while somebody keeps it alive.
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

// lodge is an agent that is kept alive by guests, and by a round that it is to do.
type lodge struct {
	*agent.Agent[none]
	vigil  *vigil
	life   int
	guests []func(context.Context) error // have them go
}

var lodges dohost.Namespace[lodge] = "lodge"

// awake says what is wrong if the lodge is kept alive and no alarm will wake it in time.
func (l *lodge) awake(ctx context.Context) error {
	at, set, err := l.Object().GetAlarm(ctx)
	by := time.Now().Add(heartbeat + time.Millisecond) // to which it is rounded
	if err == nil && l.vigil.held() > 0 && (!set || at.After(by)) {
		err = fmt.Errorf("life %d is kept alive, and the alarm is set (%t) for %v, not by %v", l.life, set, at, by)
	}
	return err
}

// enter has a guest come.
func (l *lodge) enter(ctx context.Context, _ none) (none, error) {
	release, err := l.KeepAlive(ctx)
	if err != nil {
		return none{}, err
	}
	l.vigil.hold(l.life, 1)
	l.guests = append(l.guests, release)
	return none{}, l.awake(ctx)
}

// leave has a guest go, and say so twice. In another life than that in which he came he has gone.
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

// send has the lodge do its round.
func (l *lodge) send(ctx context.Context, _ none) (none, error) {
	return none{}, errors.Join(dohost.Put(ctx, l.Storage(), "round", "begun"), l.round(ctx))
}

// goOn does the round that a life before has not ended.
func (l *lodge) goOn(ctx context.Context) error {
	round, _, err := dohost.Get[string](ctx, l.Storage(), "round")
	if err != nil || round != "begun" {
		return err
	}
	return l.round(ctx)
}

// round does the round, for which nothing wakes the lodge but that it is kept alive.
func (l *lodge) round(ctx context.Context) error {
	release, err := l.KeepAlive(ctx)
	if err != nil {
		return err
	}
	return l.Object().Go(ctx, "round", func(ctx context.Context) error {
		_, err := agent.KeepAliveWhile(ctx, l, func(ctx context.Context) (none, error) {
			l.vigil.hold(l.life, 1)
			defer l.vigil.hold(l.life, -1)
			if err := dohost.Sleep(ctx, 2*heartbeat+time.Second); err != nil {
				return none{}, err
			}
			if err := l.awake(ctx); err != nil {
				l.vigil.fault(err)
			}
			return none{}, dohost.Put(ctx, l.Storage(), "round", "done")
		})
		return errors.Join(err, release(ctx))
	})
}

func (l *lodge) rounds(ctx context.Context, _ none) (round string, err error) {
	round, _, err = dohost.Get[string](ctx, l.Storage(), "round")
	return round, err
}

// comesTo waits until the lodge is in memory if somebody keeps it alive, and else is not. Of a life
// that was kept alive until it was ended another comes, which nobody keeps alive.
func (v *vigil) comesTo(h *dohosttest.Host) error {
	for range 5 {
		h.Advance(2*heartbeat + time.Second)
		if h.Host().IsLive(lodges.Get(h, "a").ID()) == (v.held() > 0) {
			return nil
		}
	}
	return fmt.Errorf("life %d is kept alive by %d, and that is not so", v.lives, v.held())
}

// stayAt has two guests come and go, and then a round begun, for which nobody looks again.
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

// newKeeping is an agent that is kept alive.
func newKeeping() dohosttest.Scenario {
	v := new(vigil)
	sent := false
	return dohosttest.Scenario{
		Classes: []dohost.Class{agent.Bind(lodges, func(_ context.Context, a *agent.Agent[none]) (*lodge, error) {
			return &lodge{Agent: a, vigil: v, life: v.begin()}, nil
		}, agent.OnStart((*lodge).goOn), agent.Tune[lodge](agent.Options{KeepAlive: heartbeat}))},
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
			if sent || round != "" { // that begun is done, whoever was told
				err = errors.Join(err, differ("the round", round, "done"))
			}
			return errors.Join(err, v.wrong())
		},
	}
}

package pool

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dohost/dohost"
)

// waiters are the long polls of an incarnation that wait, the oldest first. The holder of the turn owns them.
type waiters []*waiter

// waiter is a long poll.
type waiter struct {
	client string    // a newer poll of the client ends an older one
	role   string    // of the restarts that a daemon waits for; empty: of all roles
	notify chan bool // has room for one: true to look again, false to end
}

// wakeOne wakes the oldest waiter.
func (ws *waiters) wakeOne() {
	if len(*ws) > 0 {
		(*ws)[0].notify <- true
		*ws = slices.Delete(*ws, 0, 1)
	}
}

// wakeDaemons wakes the daemons that wait for the restart of a role.
func (ws *waiters) wakeDaemons(role string) {
	*ws = slices.DeleteFunc(*ws, func(w *waiter) bool {
		concerned := w.role == "" || w.role == role
		if concerned {
			w.notify <- true
		}
		return concerned
	})
}

// end ends the waiter of a client.
func (ws *waiters) end(client string) {
	*ws = slices.DeleteFunc(*ws, func(w *waiter) bool {
		if w.client == client {
			w.notify <- false
		}
		return w.client == client
	})
}

// wait gives up the turn until the waiter is woken, d is over, a newer poll of its
// client ends it, or the host begins to close. It reports the first of them. Its
// error means that the incarnation has ended: then the caller does not hold the turn.
func (p *Pool) wait(ctx context.Context, w *waiter, d time.Duration, ws *waiters) (woken bool, err error) {
	ws.end(w.client)
	w.notify = make(chan bool, 1)
	*ws = append(*ws, w)
	err = dohost.Await(ctx, func(ctx context.Context) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case woken = <-w.notify:
		case <-timer.C:
		case <-p.Object().HostClosing():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return nil
	})
	if errors.Is(err, dohost.ErrFenced) {
		return false, err
	}
	*ws = slices.DeleteFunc(*ws, func(x *waiter) bool { return x == w })
	select {
	case woken = <-w.notify: // at the same moment as another reason
	default:
	}
	return woken, err
}

// waitForTask waits for a task of a claim's role.
func (p *Pool) waitForTask(ctx context.Context, c ClaimRequest, d time.Duration) (woken bool, err error) {
	p.endWait(c.Role, c.Conn)
	n := 0
	for _, ws := range p.claimers {
		n += len(*ws)
	}
	if n >= maxWaits {
		return false, refuse(ErrFull, "%d workers wait for a task, and no more may: ask again in a second", n)
	}
	ws := p.claimers[c.Role]
	if ws == nil {
		ws = &waiters{}
		p.claimers[c.Role] = ws
	}
	woken, err = p.wait(ctx, &waiter{client: c.Conn}, d, ws)
	if errors.Is(err, dohost.ErrFenced) {
		return false, err
	}
	if len(*ws) == 0 && p.claimers[c.Role] == ws {
		delete(p.claimers, c.Role)
	}
	return woken, err
}

// endWait ends the claim of a worker that waits.
func (p *Pool) endWait(role, conn string) {
	if ws := p.claimers[role]; ws != nil {
		ws.end(conn)
	}
}

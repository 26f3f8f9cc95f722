package simtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// retention is how long a fiber that has ended is kept.
const retention = time.Minute

// fiberRecord has the clients' knowledge of fibers, and the activity of these fibers.
type fiberRecord struct {
	mu        sync.Mutex
	ids       map[string]string // by keys
	cancelled map[string]bool   // confirmed to a client
	active    map[string]int    // calls of methods
	faults    []error
}

func (r *fiberRecord) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids, r.cancelled, r.active, r.faults = map[string]string{}, map[string]bool{}, map[string]int{}, nil
}

// setID records the fiber of a key. While it is known, the key has no other fiber.
func (r *fiberRecord) setID(key, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.ids[key]; ok && known != id {
		return fmt.Errorf("key %s has another fiber than it had", key)
	}
	r.ids[key] = id
	return nil
}

// removeID removes the fiber of a key from the record, and returns its id.
func (r *fiberRecord) removeID(key string) (id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id = r.ids[key]
	delete(r.ids, key)
	return id
}

func (r *fiberRecord) knownIDs() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.ids)
}

// cancel records that a client got the confirmation of a cancelled fiber.
func (r *fiberRecord) cancel(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancelled[r.ids[key]] = true
}

// recordAction records an action of a fiber: a cancelled fiber must not act.
func (r *fiberRecord) recordAction(id, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancelled[id] {
		r.faults = append(r.faults, fmt.Errorf("a cancelled fiber %s", what))
	}
}

// beginCall counts a call of a fiber's method until leave.
func (r *fiberRecord) beginCall(id string) (leave func()) {
	r.recordAction(id, "begins")
	r.count(id, 1)
	return func() { r.count(id, -1) }
}

func (r *fiberRecord) count(id string, by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active[id] += by
}

// err returns the faults, also for a method of a cancelled fiber that still runs.
func (r *fiberRecord) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := errors.Join(r.faults...)
	for id := range r.cancelled {
		err = errors.Join(err, differ("methods that run after the cancellation of their fiber", r.active[id], 0))
	}
	return err
}

// cancelAgent is an agent with fibers that clients cancel: those of start take two steps, and those of startAndCancel
// are cancelled in the event that starts them.
type cancelAgent struct {
	*agent.Agent[none]
	bank   *dohosttest.FakeService
	record *fiberRecord
}

var cancelAgents dohost.Namespace[cancelAgent] = "cancel-agent"

const (
	twoStepKind   agent.FiberKind[fiberCheckpoint] = "two-step"
	cancelledKind agent.FiberKind[fiberCheckpoint] = "whim"
)

func (b *cancelAgent) run(ctx context.Context, f *agent.Fiber[fiberCheckpoint]) error {
	defer b.record.beginCall(f.ID)()
	for p := f.Checkpoint(); p.Done < 2; {
		err := dohost.Await(ctx, func(ctx context.Context) error {
			return b.bank.Call(ctx, fmt.Sprintf("%s/%d", p.Name, p.Done), "")
		})
		if err != nil {
			return nil // the result of a fiber that is cancelled, or was cut off, does not count
		}
		p.Done++
		if err := f.SaveCheckpoint(ctx, p); err != nil {
			return err
		}
		b.record.recordAction(f.ID, "saves a checkpoint")
	}
	return dohost.Add(ctx, b.Storage(), f.Checkpoint().Name, 1)
}

// start starts the fiber of a key.
func (b *cancelAgent) start(ctx context.Context, key string) (id string, err error) {
	s, err := agent.StartFiber(ctx, b, twoStepKind, fiberCheckpoint{Name: key}, &agent.FiberOptions{Key: key})
	return s.ID, err
}

// startAndCancel starts a fiber, and cancels it in the same event.
func (b *cancelAgent) startAndCancel(ctx context.Context, key string) (id string, err error) {
	s, err := agent.StartFiber(ctx, b, cancelledKind, fiberCheckpoint{Name: key}, &agent.FiberOptions{Key: key})
	if err == nil {
		_, err = b.Fibers().Cancel(ctx, s.ID)
	}
	return s.ID, err
}

func (b *cancelAgent) cancel(ctx context.Context, id string) (bool, error) {
	return b.Fibers().Cancel(ctx, id)
}

// wait returns the final status of a fiber.
func (b *cancelAgent) wait(ctx context.Context, id string) (agent.FiberStatus, error) {
	info, _, err := b.Fibers().Wait(ctx, id)
	return info.Status, err
}

// deleteCancelled deletes the cancelled fibers.
func (b *cancelAgent) deleteCancelled(ctx context.Context, _ none) (int, error) {
	return b.Fibers().DeleteEnded(ctx, &agent.FiberQuery{Kind: string(cancelledKind)})
}

// finished returns how often a fiber of a key has completed.
func (b *cancelAgent) finished(ctx context.Context, key string) (int, error) {
	n, _, err := dohost.Get[int](ctx, b.Storage(), key)
	return n, err
}

// fiberState is the agent's view of a fiber. The agent has no state of an unknown fiber.
type fiberState struct {
	Status agent.FiberStatus
	Ended  time.Time
}

// states returns the states of the fibers of keys. All queries for a fiber must agree.
func (b *cancelAgent) states(ctx context.Context, ids map[string]string) (fates map[string]fiberState, err error) {
	fates = map[string]fiberState{}
	all, err := b.Fibers().List(ctx, nil)
	listed := map[string]agent.FiberInfo{}
	for _, i := range all {
		listed[i.ID] = i
	}
	for key, id := range ids {
		i, ok, err2 := b.Fibers().Get(ctx, id)
		k, okByKey, err3 := b.Fibers().GetByKey(ctx, key)
		l, okListed := listed[id]
		want := fmt.Sprint(ok, i.ID, i.Status)
		err = errors.Join(err, err2, err3, differ(key+" by its key", fmt.Sprint(okByKey, k.ID, k.Status), want),
			differ(key+" in the list", fmt.Sprint(okListed, l.ID, l.Status), want))
		if ok {
			fates[key] = fiberState{i.Status, i.Ended}
		}
	}
	return fates, errors.Join(err, differ("fibers that are listed", len(listed), len(fates)))
}

// client is a client of a cancelAgent.
type client struct {
	h      *dohosttest.Host
	record *fiberRecord
}

func (c *client) stub() dohost.Stub[cancelAgent] { return cancelAgents.Get(c.h, "a") }

// begin starts the fiber of a key, by a method of the agent.
func (c *client) begin(
	ctx context.Context, key string, start func(*cancelAgent, context.Context, string) (string, error),
) error {
	id, err := retryCall(ctx, c.stub(), start, key)
	if err != nil {
		return err
	}
	return c.record.setID(key, id)
}

// checkStates compares the statuses of the fibers that must be known, by their keys, with want.
func (c *client) checkStates(ctx context.Context, want map[string]agent.FiberStatus) (map[string]fiberState, error) {
	fates, err := retryCall(ctx, c.stub(), (*cancelAgent).states, c.record.knownIDs())
	found := map[string]agent.FiberStatus{}
	for key, f := range fates {
		found[key] = f.Status
	}
	return fates, errors.Join(err, differ("the fibers", found, want), c.record.err())
}

// run completes one fiber, cancels another one in its second step, and deletes and repeats a cancelled one.
func (c *client) run(ctx context.Context) error {
	for _, key := range []string{"done", "cancelled", "done"} {
		if err := c.begin(ctx, key, (*cancelAgent).start); err != nil {
			return err
		}
	}
	if err := c.begin(ctx, "whim", (*cancelAgent).startAndCancel); err != nil {
		return err
	}
	c.record.cancel("whim")
	c.h.Advance(3500 * time.Millisecond)
	if _, err := retryCall(ctx, c.stub(), (*cancelAgent).cancel, c.record.knownIDs()["cancelled"]); err != nil {
		return err
	}
	c.record.cancel("cancelled")
	c.h.Advance(100 * time.Millisecond)
	status, err := retryCall(ctx, c.stub(), (*cancelAgent).wait, c.record.knownIDs()["done"])
	if err = errors.Join(err, differ("the end of the fiber", status, agent.FiberCompleted)); err != nil {
		return err
	}
	return errors.Join(c.startAgain(ctx), c.checkExpiry(ctx))
}

// startAgain starts fibers that exist, or no longer do.
func (c *client) startAgain(ctx context.Context) error {
	err := c.begin(ctx, "cancelled", (*cancelAgent).start) // it exists
	if _, err2 := retryCall(ctx, c.stub(), (*cancelAgent).deleteCancelled, none{}); err != nil || err2 != nil {
		return errors.Join(err, err2)
	}
	old := c.record.removeID("whim")
	if err := c.begin(ctx, "whim", (*cancelAgent).startAndCancel); err != nil {
		return err
	}
	c.record.cancel("whim")
	if c.record.knownIDs()["whim"] == old {
		return errors.New("a fiber that was deleted is there")
	}
	return nil
}

// checkExpiry checks just before the first fiber may expire, and after all must have expired.
func (c *client) checkExpiry(ctx context.Context) error {
	want := map[string]agent.FiberStatus{
		"done": agent.FiberCompleted, "cancelled": agent.FiberCancelled, "whim": agent.FiberCancelled,
	}
	fates, err := c.checkStates(ctx, want)
	if err != nil {
		return err
	}
	first, last := fates["cancelled"].Ended, fates["cancelled"].Ended
	for _, f := range fates {
		if f.Ended.Before(first) {
			first = f.Ended
		}
		if f.Ended.After(last) {
			last = f.Ended
		}
	}
	c.h.Advance(time.Until(first.Add(retention - 10*time.Second)))
	if _, err := c.checkStates(ctx, want); err != nil {
		return err
	}
	c.h.Advance(time.Until(last.Add(retention + time.Minute))) // for an alarm that is struck
	_, err = c.checkStates(ctx, nil)
	return err
}

// newFiberCancelled has fibers that are cancelled, deleted and expired.
func newFiberCancelled() dohosttest.Scenario {
	bank, r := &dohosttest.FakeService{Idempotent: true, Latency: time.Second}, new(fiberRecord)
	o := &agent.KindOptions{MaxRetries: 1000, KeepCompleted: retention}
	return dohosttest.Scenario{
		Classes: []dohost.Class{agent.Bind(cancelAgents, func(_ context.Context, a *agent.Agent[none]) (*cancelAgent, error) {
			return &cancelAgent{a, bank, r}, nil
		}, &agent.Handlers[cancelAgent, none]{Options: agent.Options{KeepAlive: 5 * time.Second}},
			agent.OnFiber(twoStepKind, (*cancelAgent).run, o), agent.OnFiber(cancelledKind, (*cancelAgent).run, o))},
		Services: []*dohosttest.FakeService{bank},
		Reset:    r.reset,
		Places:   agentPlaces,
		Run:      func(ctx context.Context, h *dohosttest.Host) error { return (&client{h, r}).run(ctx) },
		Check: func(ctx context.Context, h *dohosttest.Host) (err error) {
			for key, want := range map[string]int{"done": 1, "cancelled": 0, "whim": 0} {
				n, err2 := dohost.Call(ctx, cancelAgents.Get(h, "a"), (*cancelAgent).finished, key)
				err = errors.Join(err, err2, differ("ends of "+key, n, want))
			}
			fates, err2 := dohost.Call(ctx, cancelAgents.Get(h, "a"), (*cancelAgent).states, r.knownIDs())
			return errors.Join(err, err2, differ("fibers that are left", len(fates), 0), r.err())
		},
	}
}

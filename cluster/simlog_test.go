package cluster

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/sharedlog"
)

// simLog is the log of a cell without records: it has the leases only.
type simLog struct {
	cell int
	mu   sync.Mutex
	last *simLease
}

// logOf is a log as one process reaches it.
type logOf struct {
	*simLog
	p *simProcess
}

// simLease is valid until its process has not reached the log for the time of a lease.
type simLease struct {
	sharedlog.Lease // panics: the node calls no other method
	log             *simLog
	p               *simProcess
	generation      uint64
	session         int // of the process
	lost            chan struct{}

	// Guarded by the mu of the log.
	invalid bool // lost is closed
	ended   bool // another process may acquire the log
}

const simLeaseTime = 3 * time.Second

func (l logOf) Acquire(ctx context.Context) (sharedlog.Lease, error) {
	for {
		if err := l.p.reach(ctx, toLogs); err != nil {
			return nil, err
		}
		if o := l.take(); o != nil {
			return o, nil
		}
		sleep(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

func (l logOf) take() *simLease {
	l.mu.Lock()
	defer l.mu.Unlock()
	generation, session := uint64(1), 0
	if l.p.simulation.nodeLeases {
		if session = l.p.currentSession(); session == 0 {
			return nil
		}
	}
	if l.last != nil {
		if !l.last.isFreeLocked() {
			return nil
		}
		l.last.endLocked()
		generation = l.last.generation + 1
	}
	l.last = &simLease{log: l.simLog, p: l.p, generation: generation, session: session, lost: make(chan struct{})}
	return l.last
}

// isFreeLocked reports whether another process may acquire the log.
func (o *simLease) isFreeLocked() bool {
	if o.p.simulation.nodeLeases {
		return o.ended || o.p.hasExpired(o.session)
	}
	return o.ended || o.p.silent(toLogs) >= simLeaseTime
}

func (o *simLease) endLocked() {
	o.ended = true
	if !o.invalid {
		o.invalid = true
		close(o.lost)
	}
}

// expire makes the leases of a process invalid that has not reached the logs since a time.
func (p *simProcess) expire(since time.Time) {
	p.mu.Lock()
	same := p.since[toLogs].Equal(since)
	p.mu.Unlock()
	if same {
		p.loseAll()
	}
}

func (o *simLease) Generation() uint64 { return o.generation }

func (o *simLease) Release(ctx context.Context) error {
	if err := o.p.reach(ctx, toLogs); err != nil {
		return err
	}
	o.log.mu.Lock()
	defer o.log.mu.Unlock()
	o.endLocked()
	return nil
}

// valid is the lease's own view.
func (o *simLease) valid() bool {
	o.log.mu.Lock()
	defer o.log.mu.Unlock()
	if o.p.simulation.nodeLeases {
		return !o.invalid && o.session == o.p.currentSession()
	}
	return !o.invalid && o.p.silent(toLogs) < simLeaseTime-500*time.Millisecond
}

// simHost is the host of a cell.
type simHost struct {
	lease  *simLease
	p      *simProcess
	closed chan struct{}
	slow   atomic.Int64 // the time.Duration that it needs to close; 0 for a random one
}

func (h *simHost) ServeHTTP(http.ResponseWriter, *http.Request) {}

func (h *simHost) Failed() <-chan struct{} { return h.lease.lost }

func (h *simHost) Close() error {
	close(h.closed) // panics at a second call
	sleep(context.Background(), cmp.Or(time.Duration(h.slow.Load()), h.p.simulation.duration()))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return h.lease.Release(ctx)
}

// simSlowest is the longest time that a host needs to open or to close.
const simSlowest = 40 * time.Second

// simRelease is Options.ReleaseTime: a host may be opened and closed while another node waits for the log.
const simRelease = 2 * simSlowest

func simWait() time.Duration { return (&Options{TTL: *simTTL, ReleaseTime: simRelease}).wait() }

// duration returns the time that a host needs to open or to close.
func (w *simulation) duration() time.Duration {
	if w.hostTime != 0 {
		return w.hostTime
	}
	s := w.table
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.r.IntN(40) == 0 {
		return simSlowest/2 + time.Duration(s.r.Int64N(int64(simSlowest/2)))
	}
	return 50 * time.Millisecond
}

func (p *simProcess) open(cell int, l sharedlog.Lease, _ dohost.Remote) (Host, error) {
	sleep(context.Background(), p.simulation.duration())
	lease := l.(*simLease)
	if lease.log.cell != cell {
		return nil, errors.New("the lease is of another cell")
	}
	if p.failOpen.CompareAndSwap(true, false) {
		return nil, errors.New("the directory cannot be opened")
	}
	return &simHost{lease: lease, p: p, closed: make(chan struct{})}, nil
}

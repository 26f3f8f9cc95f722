package dohosttest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// process is one opening of the store, as a process would make it.
type process struct {
	n     int // counts the processes of a run, from 1
	fs    *objectstore.FS
	host  *dohost.Host
	dying atomic.Bool // it is ending: nothing that its code does from now on counts
	ended bool        // its goroutines no longer stop at points; owned by the scheduler
	// fenced: another process owns the log. Its goroutines stop at points, which are no points of the run. Owned by the scheduler.
	fenced bool
	gone   chan struct{} // closed when its goroutines have come to rest
	// unaware: it was taken over and did not notice. Read after gone.
	unaware bool
}

// dir is the directory of a store in its file system.
const dir = "data"

// start starts a process on a file system.
func (w *scenarioRun) start(fs *objectstore.FS, classes []dohost.Class) (*process, error) {
	w.processes++
	p := &process{n: w.processes, fs: fs, gone: make(chan struct{})}
	o := w.options
	o.Chaos, o.Logger = dohost.Chaos{}, nil
	o.Listener = dohost.Tee(w.listener(p), o.Listener)
	kernel.Tune(&o, func(ro *runtime.Options) {
		ro.Policy.At, ro.Policy.Trusted = func(at runtime.Point) eviction.EndMode { return w.at(p, at) }, false
		ro.Store.OneObject = w.order == diskFirst
		ro.Store.ReserveBytes = 1 // the file system reports its usage only if a test has set it
		ro.Store.Entropy = &ulid.LockedMonotonicReader{MonotonicReader: ulid.Monotonic(rand.NewChaCha8(seedOf(w.order.seed, p.n)), 0)}
		ro.Store.Cache = 1 << 20
	})
	lease, err := w.acquire(p)
	if err != nil {
		return nil, err
	}
	if lease != nil {
		o.Lease = lease
		defer lease.opened.Store(true)
	}
	fs.OnWrite(nil) // opening happens at a standstill
	host, err := dohost.Open(dir, kernel.OnFS(&o, fs), classes...)
	if err != nil {
		return nil, err
	}
	p.host = host
	fs.OnWrite(func(op, path string, _ int64) error {
		// The database of a restore is not the store's: its log is synced under locks of the engine, and holds nothing.
		if op == "sync" && strings.HasPrefix(path, dir+"/db/") && strings.HasSuffix(path, ".log") {
			w.sched.ask(&stepRequest{proc: p, point: runtime.Point{Place: eviction.PlaceRecord, Op: fsync}})
		}
		return nil
	})
	return p, nil
}

// seedOf seeds the random numbers of the n-th process of a run. Data that is lost with one
// process must not reappear in the next by chance.
func seedOf(seed uint64, n int) (key [32]byte) {
	binary.BigEndian.PutUint64(key[:], seed)
	binary.BigEndian.PutUint64(key[8:], uint64(n))
	return key
}

// fsync names the step of the disk itself: written bytes wait for it.
const fsync = "fsync"

// at is Policy.At of a process's runtime.
func (w *scenarioRun) at(p *process, at runtime.Point) eviction.EndMode {
	g := &stepRequest{proc: p, point: at}
	if w.mayEndAt(at) {
		g.pcs = callers()
	}
	return w.sched.ask(g)
}

// currentProcess has the present process. Calls that come while no process runs wait, as they would at
// a listener.
type currentProcess struct {
	mu   sync.Mutex
	proc *process
	up   chan struct{} // closed while there is one
}

// remove takes the process out, and returns it.
func (s *currentProcess) remove() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.up:
		s.up = make(chan struct{})
	default: // it is restarting
	}
	return s.proc
}

// replace makes p the present process, unless another has replaced old.
func (s *currentProcess) replace(p, old *process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != old {
		return false
	}
	s.proc = p
	close(s.up)
	return true
}

// wait waits for a process.
func (s *currentProcess) wait() *process {
	for {
		s.mu.Lock()
		p, up := s.proc, s.up
		s.mu.Unlock()
		select {
		case <-up:
			return p
		default:
		}
		<-up
	}
}

// end ends the process as a kill or a power cut does, at a standstill, and starts the next
// one on the remaining files. kept selects whether unsynced writes are among them.
func (w *scenarioRun) end(kept bool) { w.endFor(kept, 0) }

// endFor is end, with a pause between the two processes.
func (w *scenarioRun) endFor(kept bool, pause time.Duration) {
	old := w.current.remove()
	percent := 0
	if kept {
		percent = 100
	}
	fs := old.fs.Crash(percent, 1)
	w.abandonProcess(old)
	time.Sleep(pause) // all other goroutines wait for permission
	w.startNext(fs, old)
}

// abandonProcess ends a process and waits until the goroutines at its points have ended.
func (w *scenarioRun) abandonProcess(p *process) {
	p.dying.Store(true)
	go func() {
		defer close(p.gone)
		kernel.OfHost(p.host).Abandon()
	}()
	synctest.Wait() // its rights have ended
	p.ended = true
	for {
		w.sched.sort()
		at := -1
		for i, g := range w.sched.waiting {
			if g.proc == p {
				at = i
			}
		}
		if at < 0 {
			break
		}
		g := w.sched.waiting[at]
		w.sched.waiting = append(w.sched.waiting[:at], w.sched.waiting[at+1:]...)
		g.proceed <- eviction.EndNone
		synctest.Wait()
	}
	w.pastProcesses = append(w.pastProcesses, p)
}

// startNext starts a process in place of the last one.
func (w *scenarioRun) startNext(fs *objectstore.FS, old *process) {
	p, err := w.start(fs, w.classes)
	if err != nil {
		w.fail(fmt.Errorf("the host does not restart: %w", err))
		p = old
	}
	w.current.replace(p, old)
}

// closeLast closes the last process, and waits for the earlier ones.
func (w *scenarioRun) closeLast() error {
	p := w.current.wait()
	var err error
	if !p.ended {
		err = p.host.Close()
		if p.host.Err() != nil {
			err = nil // the scenario made it fail
		}
	}
	for _, p := range w.pastProcesses {
		if <-p.gone; p.unaware {
			err = errors.Join(err, errors.New("a host did not notice that another one had taken over"))
		}
	}
	for _, p := range append(w.pastProcesses, p) {
		if left := p.host.Zombies(); len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("handlers are still running after their contexts were cancelled: %v", left))
		}
	}
	return err
}

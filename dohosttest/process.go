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
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// process is one opening of the store, as a process would have it.
type process struct {
	n     int // counts the processes of a run, from 1
	fs    *objectstore.FS
	host  *dohost.Host
	dying atomic.Bool   // it is being ended: what its code does from now on no process does
	ended bool          // and stands still no more; of the scheduler
	gone  chan struct{} // closed when its goroutines have come to rest
}

// dir is where a store lies in its file system.
const dir = "data"

// start begins a process on a file system.
func (w *world) start(fs *objectstore.FS, classes []dohost.Class) (*process, error) {
	w.processes++
	p := &process{n: w.processes, fs: fs, gone: make(chan struct{})}
	o := w.options
	o.FS, o.Chaos, o.Logger = fs, dohost.Chaos{}, nil
	o.Listener = dohost.Tee(w.listener(p), o.Listener)
	tune := o.Tune
	o.Tune = func(ro *runtime.Options) {
		if tune != nil {
			tune(ro)
		}
		ro.Policy.At = func(at runtime.Point) runtime.Style { return w.at(p, at) }
		ro.Store.OneObject = w.order == diskFirst
		ro.Store.ReserveBytes = -1
		ro.Store.Entropy = &ulid.LockedMonotonicReader{MonotonicReader: ulid.Monotonic(rand.NewChaCha8(seedOf(w.seed, p.n)), 0)}
		ro.Store.Cache = 1 << 20
	}
	fs.OnWrite(nil) // opening happens at a standstill
	host, err := dohost.Open(dir, &o, classes...)
	if err != nil {
		return nil, err
	}
	p.host = host
	fs.OnWrite(func(op, path string, _ int64) error {
		if op == "sync" && strings.HasSuffix(path, ".log") {
			w.sched.ask(&grant{proc: p, point: runtime.Point{Place: runtime.PlaceRecord, Op: fsync}})
		}
		return nil
	})
	return p, nil
}

// seedOf is that of what the n-th process of a run draws: of what is lost with one,
// nothing may look the same in the next.
func seedOf(seed uint64, n int) (key [32]byte) {
	binary.BigEndian.PutUint64(key[:], seed)
	binary.BigEndian.PutUint64(key[8:], uint64(n))
	return key
}

// fsync names the step of the disk itself: what was written waits for it.
const fsync = "fsync"

// at is what the runtime asks at every point.
func (w *world) at(p *process, at runtime.Point) runtime.Style {
	g := &grant{proc: p, point: at}
	if w.mayStrike(at) {
		g.pcs = callers()
	}
	return w.sched.ask(g)
}

// seat is where the process of the moment is found. Calls that come while there is
// none wait, as they would at a listener.
type seat struct {
	mu   sync.Mutex
	proc *process
	up   chan struct{} // closed while there is one
}

// down takes the process out.
func (s *seat) down() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.up:
		s.up = make(chan struct{})
	default: // it is being restarted
	}
	return s.proc
}

// put puts a process in, unless another has come in the place of old meanwhile.
func (s *seat) put(p, old *process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != old {
		return false
	}
	s.proc = p
	close(s.up)
	return true
}

// get waits for a process.
func (s *seat) get() *process {
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

// end ends the process as a kill or a power cut does, with everything at a standstill,
// and begins the next on what is left. kept says whether what was written and not
// synced is found there.
func (w *world) end(kept bool) { w.endFor(kept, 0) }

// endFor is end, with so much time between the two processes.
func (w *world) endFor(kept bool, away time.Duration) {
	old := w.seat.down()
	percent := 0
	if kept {
		percent = 100
	}
	fs := old.fs.Crash(percent, 1)
	w.bury(old)
	time.Sleep(away) // all else waits for leave
	w.next(fs, old)
}

// bury ends a process and waits for what stands still at its points to unwind.
func (w *world) bury(p *process) {
	p.dying.Store(true)
	go func() {
		defer close(p.gone)
		p.host.Runtime().Abandon()
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
		g.goOn <- runtime.StyleNone
		synctest.Wait()
	}
	w.buried = append(w.buried, p)
}

// next begins a process, and puts it in the place of the last.
func (w *world) next(fs *objectstore.FS, old *process) {
	p, err := w.start(fs, w.classes)
	if err != nil {
		w.fail(fmt.Errorf("the host does not start again: %w", err))
		p = old
	}
	w.seat.put(p, old)
}

// leave closes the last process, and waits for those before.
func (w *world) leave() error {
	p := w.seat.get()
	var err error
	if !p.ended {
		err = p.host.Close()
		if p.host.Err() != nil {
			err = nil // it failed because the scenario made it
		}
	}
	for _, p := range w.buried {
		<-p.gone
	}
	for _, p := range append(w.buried, p) {
		if left := p.host.Zombies(); len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("handlers that ignore the end of their context still run: %v", left))
		}
	}
	return err
}

package runtime

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dohost/dohost/internal/guard"
	"github.com/dohost/dohost/internal/invariants"
)

// serviceReports queues the calls of Listener.Service. One goroutine makes the calls, in order, until the queue is
// empty. A second goroutine waits for the first one: it restarts the calls after a function that panicked or exited, and
// measures each call.
type serviceReports struct {
	mu         sync.Mutex
	queue      []serviceReport
	bytes      int           // of the queue
	running    bool          // the two goroutines run
	closed     bool          // reports are discarded
	calling    bool          // a call is in progress
	began      time.Duration // of that call, by Host.now
	overdue    bool          // the host has reported that call
	dropped    int           // reports that Failed does not know of
	quietUntil time.Duration // when the host may report dropped while the queue is not empty
}

type serviceReport struct {
	id    ID
	event string
	attrs []slog.Attr
	size  int
}

// The limits of the queue. A call that has taken longer than reportStuck counts as stuck: maxStuckReports bounds the queue until
// the call returns. maxReportBytes bounds the queue at all times.
const (
	reportStuck     = time.Second
	maxStuckReports = 4096
	maxReportBytes  = 64 << 20
)

const serviceFunc = "Listener.Service"

// Report passes an event of a service on top of the runtime to the Listener. It is constant work, and does not wait for
// the Listener. See Listener.Service for the limits. After Close it does nothing.
func (h *Host) Report(id ID, event string, attrs ...slog.Attr) {
	if h.opts.Listener.Service != nil {
		h.services.add(h, serviceReport{id, event, attrs, 128 + len(id.Class) + len(id.Name) + len(event) + attrBytes(attrs)})
	}
}

// attrBytes estimates the memory of attributes. It does not know the size of values of KindAny.
func attrBytes(attrs []slog.Attr) int {
	n := 0
	for _, a := range attrs {
		n += 64 + len(a.Key)
		switch a.Value.Kind() {
		case slog.KindString:
			n += len(a.Value.String())
		case slog.KindGroup:
			n += attrBytes(a.Value.Group())
		}
	}
	return n
}

func (s *serviceReports) add(h *Host, r serviceReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
	case s.fullLocked(h.now(), r.size):
		s.dropped++
	default:
		s.queue = append(s.queue, r)
		s.bytes += r.size
		if !s.running {
			s.running = true
			h.emitting.Add(1)
			go s.run(h)
		}
	}
}

// fullLocked reports whether the queue has no room for a report. An empty queue has room for every report.
func (s *serviceReports) fullLocked(now time.Duration, size int) bool {
	invariants.Held(&s.mu)
	stuck := s.calling && now-s.began > reportStuck
	return len(s.queue) > 0 && s.bytes+size > maxReportBytes || stuck && len(s.queue) >= maxStuckReports
}

// run empties the queue.
func (s *serviceReports) run(h *Host) {
	defer h.decrement(&h.emitting)
	watchdog := time.NewTimer(hostFuncTimeout)
	defer watchdog.Stop()
	for {
		failure := s.watch(h, watchdog, guard.Start(func() { s.call(h) }))
		if failure == nil {
			return
		}
		s.mu.Lock()
		s.calling = false
		s.mu.Unlock()
		h.reportFailure(serviceFunc, failure, failure.Stack)
	}
}

// watch waits until the goroutine that makes the calls has ended, and reports each call that takes longer than
// hostFuncTimeout.
func (s *serviceReports) watch(h *Host, watchdog *time.Timer, ended <-chan *guard.Failure) *guard.Failure {
	for {
		select {
		case failure := <-ended:
			return failure
		case <-watchdog.C:
			overdue, next := s.check(h.now())
			watchdog.Reset(next)
			if overdue {
				h.reportFailure(serviceFunc, fmt.Errorf("the function has not returned after %v; the host does not call it again until it returns",
					hostFuncTimeout), nil)
			}
		}
	}
}

// check reports whether the call in progress has taken longer than hostFuncTimeout for the first time, and when to check again.
// It does not after Close.
func (s *serviceReports) check(now time.Duration) (overdue bool, next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.calling {
		return false, hostFuncTimeout
	}
	if took := now - s.began; took < hostFuncTimeout {
		return false, hostFuncTimeout - took
	}
	overdue = !s.overdue && !s.closed
	s.overdue = true
	return overdue, hostFuncTimeout
}

// closeServices discards the reports that wait, so that no call begins after Close has returned. It waits for a call that
// has just begun until that call has taken unwindTime.
func (h *Host) closeServices() {
	discarded, wait := h.services.close(h.now())
	h.awaitZero(&h.emitting, wait, nil)
	if discarded > 0 {
		h.reportFailure(serviceFunc, fmt.Errorf("Close has discarded %d reports, since calls of the function took too long", discarded), nil)
	}
}

// close discards the queue. It returns the number of reports that the Listener does not get and Failed does not know
// of, and the time until the call in progress has taken unwindTime.
func (s *serviceReports) close(now time.Duration) (discarded int, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	discarded = s.dropped + len(s.queue)
	s.queue, s.bytes, s.dropped, s.closed = nil, 0, 0, true
	if s.calling {
		wait = max(0, s.began+unwindTime-now)
	}
	return discarded, wait
}

// call makes the calls until the queue is empty.
func (s *serviceReports) call(h *Host) {
	for {
		r, dropped, more := s.next(h.now())
		switch {
		case !more:
			return
		case dropped > 0:
			h.reportFailure(serviceFunc, fmt.Errorf("the host has dropped %d reports, since calls of the function took too long", dropped), nil)
		default:
			h.opts.Listener.Service(r.id, r.event, r.attrs...)
		}
	}
}

// next ends a call and begins the next one, unless reports were dropped that Failed has to know of, or the queue is
// empty. While the queue is not empty, the host reports drops at most once in hostFuncTimeout.
func (s *serviceReports) next(now time.Duration) (r serviceReport, dropped int, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calling, s.overdue = false, false
	if s.dropped > 0 && (len(s.queue) == 0 || now >= s.quietUntil) {
		dropped, s.dropped = s.dropped, 0
		s.quietUntil = now + hostFuncTimeout
		return r, dropped, true
	}
	if len(s.queue) == 0 {
		s.queue, s.running = nil, false
		return r, 0, false
	}
	r, s.queue[0] = s.queue[0], serviceReport{}
	s.queue = s.queue[1:]
	s.bytes -= r.size
	s.calling, s.began = true, now
	return r, 0, true
}

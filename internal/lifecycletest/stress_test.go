package lifecycletest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// A correct service accepts starts and stops in any order and number.
type service struct {
	mu      sync.Mutex
	stopped chan struct{}
	wg      sync.WaitGroup

	starts, stops int
}

func (s *service) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts++
	if s.stopped != nil {
		return
	}
	stopped := make(chan struct{})
	s.stopped = stopped
	s.wg.Go(func() { <-stopped })
}

func (s *service) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops++
	if s.stopped == nil {
		return
	}
	close(s.stopped)
	s.stopped = nil
	s.wg.Wait()
}

func TestStressLeavesServiceStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a goroutine left would hang it
		var s service
		Stress(t, s.start, s.stop)
		if s.starts != 500 || s.stops != 501 {
			t.Errorf("%d starts and %d stops, want 500 and 501", s.starts, s.stops)
		}
		if s.stopped != nil {
			t.Error("the service still runs")
		}
	})
}

// failure replaces the test that Stress fails.
type failure struct {
	testing.TB
	message string
}

func (f *failure) Helper() {}

func (f *failure) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// In a bubble patience costs nothing.
func TestStressReportsAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		var seen failure
		var wg sync.WaitGroup
		wg.Go(func() {
			Stress(&seen, func() {}, func() { <-hold })
		})
		wg.Wait()
		if !strings.Contains(seen.message, "starting and stopping hangs") || !strings.Contains(seen.message, "TestStressReportsAHang") {
			t.Errorf("Stress said %q of a stop that hangs", seen.message)
		}
		close(hold)
	})
}

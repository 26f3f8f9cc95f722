package runtime

import (
	"fmt"
	"log/slog"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/objectstore"
)

// serviceLog is a Listener whose Service takes some time and collects the events.
type serviceLog struct {
	*Host
	call     func(event string) // may be nil
	begun    []string
	returned int
	failures []string
}

func openServiceLog(t *testing.T, call func(event string)) *serviceLog {
	l := &serviceLog{call: call}
	l.Host = open(t, objectstore.NewMemFS(), Options{Listener: Listener{
		Service: func(_ ID, event string, _ ...slog.Attr) {
			l.begun = append(l.begun, event)
			call(event)
			l.returned++
		},
		Failed: func(err error) { l.failures = append(l.failures, err.Error()) },
	}})
	return l
}

// report reports the events from to to-1.
func (l *serviceLog) report(from, to int) {
	for i := from; i < to; i++ {
		l.Report(ID{}, fmt.Sprint(i))
	}
}

// check compares the calls with the events 0 to n-1, and the failures.
func (l *serviceLog) check(t *testing.T, n int, failures ...string) {
	t.Helper()
	synctest.Wait()
	if len(l.begun) != n {
		t.Errorf("%d calls, want %d", len(l.begun), n)
	}
	for i, event := range l.begun {
		if event != fmt.Sprint(i) {
			t.Fatalf("call %d is for report %s", i, event)
		}
	}
	if !slices.Equal(l.failures, failures) {
		t.Errorf("failures %q, want %q", l.failures, failures)
	}
}

// The calls take 20 s together, and each of them a millisecond.
func TestReportsDoNotGetLostIfEachCallIsFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openServiceLog(t, func(string) { time.Sleep(time.Millisecond) })
		l.report(0, 15_000)
		time.Sleep(2*time.Second + time.Microsecond)
		l.report(15_000, 20_000)
		time.Sleep(time.Minute)
		l.check(t, 20_000)
	})
}

const (
	callHangs   = "dohost: Listener.Service: the function has not returned after 10s; the host does not call it again until it returns"
	callsDropOf = "dohost: Listener.Service: the host has dropped %d reports, since calls of the function took too long"
)

func TestReportsAreDroppedWhileACallOfTheListenerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quit := make(chan struct{})
		l := openServiceLog(t, func(string) { <-quit })
		l.report(0, 1)
		time.Sleep(time.Second)
		l.report(1, 1+maxStuckReports+1000)
		time.Sleep(time.Nanosecond)
		l.report(0, 300)
		time.Sleep(time.Minute)
		l.report(0, 400)
		l.check(t, 1, callHangs)
		close(quit)
		synctest.Wait()
		n := 1 + maxStuckReports + 1000
		l.check(t, n, callHangs, fmt.Sprintf(callsDropOf, 700))
		l.report(n, 2*n)
		l.check(t, 2*n, callHangs, fmt.Sprintf(callsDropOf, 700))
	})
}

// Each of two calls takes longer than hostFuncTimeout, and the second one begins after the first has returned.
func TestReportsThatHangAreEachReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openServiceLog(t, func(string) { time.Sleep(hostFuncTimeout + time.Second) })
		l.report(0, 2)
		time.Sleep(time.Minute)
		l.check(t, 2, callHangs, callHangs)
	})
}

// While a call of the Listener hangs, reports wait that were made after a second, too.
func TestReportsOfSomeKindsWaitForACallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quit := make(chan struct{})
		l := openServiceLog(t, func(string) { <-quit })
		l.report(0, 1)
		time.Sleep(2 * time.Second)
		l.report(1, 1+maxStuckReports+10)
		close(quit)
		l.check(t, 1+maxStuckReports, fmt.Sprintf(callsDropOf, 10))
	})
}

func TestMemoryOfReportsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quit := make(chan struct{})
		l := openServiceLog(t, func(string) { <-quit })
		text := strings.Repeat("x", 1<<20)
		report := func(from, to int) {
			for i := from; i < to; i++ {
				l.Report(ID{}, fmt.Sprint(i), slog.Group("of", slog.String("text", text)))
			}
		}
		report(0, 1)
		synctest.Wait()
		report(1, 101)
		close(quit)
		l.check(t, 64, fmt.Sprintf(callsDropOf, 37)) // the first one, and 63 that waited
		l.Report(ID{}, "64", slog.String("text", strings.Repeat(text, 100)))
		l.check(t, 65, fmt.Sprintf(callsDropOf, 37))
	})
}

// Each call takes 1.5 s at first, and one report is dropped every 3 s.
func TestDropsOfReportsAreReportedOnceInTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 1500 * time.Millisecond
		begun := time.Now()
		l := openServiceLog(t, func(string) {
			if time.Since(begun) < 34*time.Second {
				time.Sleep(took)
			}
		})
		l.report(0, 2*maxStuckReports)
		time.Sleep(took - time.Millisecond)
		for range 12 {
			l.report(0, 1)
			time.Sleep(2 * took)
		}
		var want []string
		for _, dropped := range []int{1, 3, 4, 3, 1} {
			want = append(want, fmt.Sprintf(callsDropOf, dropped))
		}
		l.check(t, 2*maxStuckReports, want...)
	})
}

// The function of the Listener ends the goroutine that calls it.
func TestListenerGoexitAfterAnEventEndsNoIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{Listener: Listener{EventEnded: func(Event) { goruntime.Goexit() }}})
		var epochs []objectstore.Epoch
		for want := 1; want <= 3; want++ {
			if n, err := add(t.Context(), h, "a", 1); err != nil || n != want {
				t.Fatalf("add: %d, %v, want %d", n, err, want)
			}
			synctest.Wait()
			info, _ := h.Inspect(id("a"))
			epochs = append(epochs, info.Epoch)
		}
		if len(slices.Compact(epochs)) != 1 {
			t.Errorf("the incarnations are %v, want one", epochs)
		}
	})
}

func TestReportsContinueAfterAListenerThatDoesNotReturn(t *testing.T) {
	for name, end := range map[string]func(){"panic: bad": func() { panic("bad") }, "the function called runtime.Goexit": goruntime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			l := openServiceLog(t, func(string) { end() })
			l.report(0, 2)
			failure := "dohost: Listener.Service: " + name
			l.check(t, 2, failure, failure)
		})
	}
}

// The first call hangs, or each call takes 0.3 s.
func TestCloseDiscardsTheReportsThatWait(t *testing.T) {
	const discarded = "dohost: Listener.Service: Close has discarded %d reports, since calls of the function took too long"
	for name, tt := range map[string]struct {
		call       func(quit <-chan struct{})
		took       time.Duration // by Close
		calls      int
		unreturned int
	}{
		"a call hangs":     {func(quit <-chan struct{}) { <-quit }, time.Second, 1, 1},
		"calls are slow":   {func(<-chan struct{}) { time.Sleep(300 * time.Millisecond) }, 1200 * time.Millisecond, 4, 0},
		"calls are slower": {func(<-chan struct{}) { time.Sleep(900 * time.Millisecond) }, 1800 * time.Millisecond, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				quit := make(chan struct{})
				l := openServiceLog(t, func(string) { tt.call(quit) })
				l.report(0, 10)
				begun := time.Now()
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				if took := time.Since(begun); took != tt.took {
					t.Errorf("Close took %v, want %v", took, tt.took)
				}
				synctest.Wait()
				if n := len(l.begun) - l.returned; n != tt.unreturned {
					t.Errorf("%d calls have not returned, want %d", n, tt.unreturned)
				}
				time.Sleep(time.Minute)
				close(quit)
				l.report(10, 20)
				time.Sleep(time.Minute)
				l.check(t, tt.calls, fmt.Sprintf(discarded, 10-tt.calls))
			})
		})
	}
}

// Reports that the host dropped before Close count as discarded.
func TestCloseReportsDropsOfReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quit := make(chan struct{})
		l := openServiceLog(t, func(string) { <-quit })
		l.report(0, 1)
		time.Sleep(2 * time.Second)
		l.report(1, 1+maxStuckReports+10)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		close(quit)
		l.check(t, 1, fmt.Sprintf("dohost: Listener.Service: Close has discarded %d reports, since calls of the function took too long", maxStuckReports+10))
	})
}

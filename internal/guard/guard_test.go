package guard

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestCallRecoversAPanic(t *testing.T) {
	if f := Call(func() {}); f != nil {
		t.Errorf("Call of a function that returns: %v", f)
	}
	bad := errors.New("bad")
	if f := Call(func() { panic(bad) }); f == nil || f.Value != bad || len(f.Stack) == 0 {
		t.Errorf("Call of a function that panics: %v", f)
	}
}

func TestFailureIsOneLine(t *testing.T) {
	f := Call(func() { panic(errors.Join(errors.New("bad"), errors.New("worse\r\n"))) })
	if got, want := f.Error(), "panic: bad; worse"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestRunSurvivesPanicAndGoexit(t *testing.T) {
	ran := false
	if f := Run(func() { ran = true }); f != nil || !ran {
		t.Errorf("Run of a function that returns: %v, ran %v", f, ran)
	}
	if f := Run(func() { panic("bad") }); f == nil || f.Value != "bad" {
		t.Errorf("Run of a function that panics: %v", f)
	}
	if f := Run(runtime.Goexit); f == nil || f.Value != nil {
		t.Errorf("Run of a function that exits: %v", f)
	}
}

// brokenHandler is a slog.Handler with methods that call end.
type brokenHandler struct{ end func() }

func (h brokenHandler) Enabled(context.Context, slog.Level) bool  { h.end(); return true }
func (h brokenHandler) Handle(context.Context, slog.Record) error { h.end(); return nil }
func (h brokenHandler) WithAttrs([]slog.Attr) slog.Handler        { h.end(); return h }
func (h brokenHandler) WithGroup(string) slog.Handler             { h.end(); return h }

func TestHandlerSurvivesPanicAndGoexit(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("bad") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			h := Handler(brokenHandler{end})
			slog.New(h).With("a", 1).WithGroup("g").Error("hello")
			if h.Enabled(t.Context(), slog.LevelError) {
				t.Error("Enabled returned true")
			}
			if err := h.Handle(t.Context(), slog.Record{}); err == nil {
				t.Error("Handle returned nil")
			}
		})
	}
}

// slowHandler is a slog.Handler that handles a record when a channel is closed.
type slowHandler struct {
	brokenHandler
	quit chan chan struct{}
}

func (h slowHandler) Handle(context.Context, slog.Record) error {
	if quit, ok := <-h.quit; ok {
		<-quit
	}
	return nil
}

func TestHandlerIsNotCalledWhileOneOfItsCallsHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := slowHandler{brokenHandler{func() {}}, make(chan chan struct{}, 2)}
		h := Handler(slow)
		quit := []chan struct{}{make(chan struct{}), make(chan struct{})}
		for _, q := range quit {
			slow.quit <- q
			go func() { _ = h.Handle(t.Context(), slog.Record{}) }() // fails after a second
		}
		close(slow.quit)
		time.Sleep(2 * callTimeout)
		for i, q := range quit {
			if err := h.Handle(t.Context(), slog.Record{}); !errors.Is(err, errSlow) {
				t.Errorf("with %d calls that hang: %v", len(quit)-i, err)
			}
			close(q)
			synctest.Wait()
		}
		if err := h.Handle(t.Context(), slog.Record{}); err != nil {
			t.Errorf("after the calls have returned: %v", err)
		}
	})
}

// brokenError is an error with methods that call end.
type brokenError struct{ end func() }

func (e brokenError) Error() string { e.end(); return "no" }
func (e brokenError) Is(error) bool { e.end(); return true }

func TestErrorsSurvivePanicAndGoexitAndHang(t *testing.T) {
	target := errors.New("target")
	for end, want := range map[string]struct {
		end  func()
		text string
	}{
		"panic":  {func() { panic("bad") }, "an error of type guard.brokenError, whose text cannot be read: panic: bad"},
		"goexit": {runtime.Goexit, "an error of type guard.brokenError, whose text cannot be read: the function called runtime.Goexit"},
		"hang": {func() { time.Sleep(2 * callTimeout) },
			"an error of type guard.brokenError, whose text cannot be read: the function has not returned after 1s"},
		"return": {func() {}, "no"},
	} {
		synctest.Test(t, func(t *testing.T) {
			err := brokenError{want.end}
			if got := Text(err); got != want.text {
				t.Errorf("%s: text %q, want %q", end, got, want.text)
			}
			if got := Is(err, target); got != (end == "return") {
				t.Errorf("%s: Is returned %v", end, got)
			}
			time.Sleep(4 * callTimeout) // until the last call has returned
		})
	}
}

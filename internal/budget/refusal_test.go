package budget

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRefusalsAreLoggedOnceAMinute has clients that wait in vain: two at a time, and one after a minute. The end of a wait by its owner is no refusal.
func TestRefusalsAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(400)
		var lines strings.Builder
		b.LogTo(slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
		holder, lent := b.Lease(first), b.Lease(first)
		if holder.Take(Free+100, 0) != nil || lent.Take(Free+60, 0) != nil {
			t.Fatal("there are no bytes")
		}
		want := func(text string) {
			t.Helper()
			if got := lines.String(); got != text {
				t.Errorf("%q is logged, want %q", got, text)
			}
			lines.Reset()
		}
		l, other := b.Lease(first), b.Lease(Object{})
		if l.Take(Free+10, 0) != nil {
			t.Fatal("there are no bytes")
		}
		quit := make(chan struct{})
		close(quit)
		_ = l.Wait(l.Take(Free+70, 0), quit)
		want("")
		ended := make(chan error)
		go func() { ended <- other.Reserve(nil, Free+70, unlent) }()
		time.Sleep(time.Second)
		_ = l.Reserve(nil, Free+80, unlent)
		<-ended
		want(`level=WARN msg="the read budget has refused a client" object="" wanted=70 of_client=0 of_object=0 of_all=170 limit=400 waiting=1 not_logged=0` + "\n")
		time.Sleep(time.Minute)
		_ = l.Reserve(nil, Free+80, unlent)
		want(`level=WARN msg="the read budget has refused a client" object=class/first wanted=70 of_client=10 of_object=170 of_all=170 limit=400 waiting=1 not_logged=1` + "\n")
		if n := b.Usage().Refused; n != 3 {
			t.Errorf("%d were refused", n)
		}
	})
}

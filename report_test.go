package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/objectstore"
)

// reporter is an object that reports its writes.
type reporter struct{ st *dohost.State }

const reporters dohost.Namespace[reporter] = "reporter"

// write writes and reports.
func (r *reporter) write(ctx context.Context, event string, attrs ...slog.Attr) error {
	r.st.Report(ctx, event, attrs...)
	return dohost.Put(ctx, r.st.Storage(), event, true)
}

// withReporter runs f in a bubble, with a host that appends the reports to a list.
func withReporter(t *testing.T, f func(t *testing.T, h *dohost.Host, fs *objectstore.FS, reports *[]string)) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var reports []string
		fs := objectstore.NewMemFS()
		h := openOn(t, fs, &dohost.Options{Listener: dohost.Listener{Service: func(id dohost.ID, event string, attrs ...slog.Attr) {
			mu.Lock()
			defer mu.Unlock()
			reports = append(reports, fmt.Sprint(id, " ", event, attrs))
		}}}, dohost.Bind(reporters, func(_ context.Context, st *dohost.State) (*reporter, error) { return &reporter{st}, nil }, nil))
		f(t, h, fs, &reports)
	})
}

func TestReportLeavesWhenTheWritesAreDurable(t *testing.T) {
	withReporter(t, func(t *testing.T, h *dohost.Host, fs *objectstore.FS, reports *[]string) {
		release := fs.HoldSyncs()
		done := make(chan error, 1)
		go func() {
			done <- reporters.Get(h, "a").Do(t.Context(), func(ctx context.Context, r *reporter) error {
				return errors.Join(r.write(ctx, "one", slog.Int("n", 1)), r.write(ctx, "two"))
			})
		}()
		synctest.Wait()
		if len(*reports) > 0 {
			t.Errorf("%q left before the sync", *reports)
		}
		release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if want := []string{"reporter/a one[n=1]", "reporter/a two[]"}; !slices.Equal(*reports, want) {
			t.Errorf("reported %q, want %q", *reports, want)
		}
	})
}

func TestListenerThatBlocksInAReportDelaysNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quit := make(chan struct{})
		var ended []error
		h := open(t, &dohost.Options{Listener: dohost.Listener{
			Service: func(dohost.ID, string, ...slog.Attr) { <-quit },
			Fenced:  func(e dohost.Ended) { ended = append(ended, e.Cause) },
		}}, dohost.Bind(reporters, func(_ context.Context, st *dohost.State) (*reporter, error) { return &reporter{st}, nil }, nil))
		for range 2 {
			began := time.Now()
			for range 3 {
				err := reporters.Get(h, "a").Do(t.Context(), func(ctx context.Context, r *reporter) error { return r.write(ctx, "written") })
				if took := time.Since(began); err != nil || took > 0 {
					t.Errorf("answered after %v: %v", took, err)
				}
			}
			time.Sleep(time.Minute)
		}
		if len(ended) > 0 {
			t.Errorf("incarnations ended: %q", ended)
		}
		close(quit)
		synctest.Wait()
	})
}

func TestReportWithoutTheTurn(t *testing.T) {
	withReporter(t, func(t *testing.T, h *dohost.Host, _ *objectstore.FS, reports *[]string) {
		err := reporters.Get(h, "a").Do(t.Context(), func(ctx context.Context, r *reporter) error {
			r.st.Report(t.Context(), "with a context of no event")
			return dohost.Await(ctx, func(ctx context.Context) error {
				r.st.Report(ctx, "in an Await")
				return nil
			})
		})
		synctest.Wait()
		if want := []string{"reporter/a in an Await[]"}; err != nil || !slices.Equal(*reports, want) {
			t.Errorf("reported %q, want %q; %v", *reports, want, err)
		}
	})
}

func TestReportOfWritesThatAreUndoneDoesNotLeave(t *testing.T) {
	for name, undo := range map[string]func(ctx context.Context, h *dohost.Host, r *reporter) error{
		"rolled back": func(ctx context.Context, _ *dohost.Host, r *reporter) error {
			_ = dohost.Transaction(ctx, func(ctx context.Context) error {
				return errors.Join(r.write(ctx, "rolled back"), errors.New("roll it back"))
			})
			return nil
		},
		"aborted": func(ctx context.Context, _ *dohost.Host, r *reporter) error {
			return errors.Join(r.write(ctx, "aborted"), r.st.Abort(ctx, nil, nil))
		},
		"after the abort": func(ctx context.Context, _ *dohost.Host, r *reporter) error {
			err := r.st.Abort(ctx, nil, nil)
			return errors.Join(err, r.write(ctx, "after the abort"))
		},
		"evicted before the commit": func(ctx context.Context, h *dohost.Host, r *reporter) error {
			err := r.write(ctx, "evicted")
			h.Evict(r.st.ID(), dohost.EndFence)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			withReporter(t, func(t *testing.T, h *dohost.Host, _ *objectstore.FS, reports *[]string) {
				a := reporters.Get(h, "a")
				_ = a.Do(t.Context(), func(ctx context.Context, r *reporter) error { return undo(ctx, h, r) })
				if err := a.Do(t.Context(), func(ctx context.Context, r *reporter) error { return r.write(ctx, "next") }); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if want := []string{"reporter/a next[]"}; !slices.Equal(*reports, want) {
					t.Errorf("reported %q, want %q", *reports, want)
				}
			})
		})
	}
}

// TestReportOfLostWritesDoesNotLeave loses a committed batch that waits for the record before it.
func TestReportOfLostWritesDoesNotLeave(t *testing.T) {
	withReporter(t, func(t *testing.T, h *dohost.Host, fs *objectstore.FS, reports *[]string) {
		release := fs.HoldSyncs()
		write := func(name string) <-chan error {
			done := make(chan error, 1)
			go func() {
				done <- reporters.Get(h, name).Do(t.Context(), func(ctx context.Context, r *reporter) error { return r.write(ctx, "written") })
			}()
			synctest.Wait()
			return done
		}
		a, b := write("a"), write("b")
		h.Evict(reporters.Get(h, "b").ID(), dohost.EndCrash)
		release()
		if err := <-a; err != nil {
			t.Error(err)
		}
		if err := <-b; !errors.Is(err, dohost.ErrFenced) {
			t.Errorf("the lost write: %v", err)
		}
		synctest.Wait()
		if want := []string{"reporter/a written[]"}; !slices.Equal(*reports, want) {
			t.Errorf("reported %q, want %q", *reports, want)
		}
	})
}

// TestReportTruncatesTexts reports texts of 4 KiB, which is the limit, and longer ones. The rune at the limit has three bytes.
func TestReportTruncatesTexts(t *testing.T) {
	full := strings.Repeat("a", 4096)
	ends := map[string]string{
		full:                           full,
		full + "a":                     full[:4093] + "…",
		full[:4092] + "€€":             full[:4092] + "…",
		strings.Repeat("b", 4_000_000): strings.Repeat("b", 4093) + "…",
	}
	synctest.Test(t, func(t *testing.T) {
		var got []slog.Attr
		h := open(t, &dohost.Options{Listener: dohost.Listener{
			Service: func(_ dohost.ID, _ string, attrs ...slog.Attr) { got = attrs },
		}}, dohost.Bind(reporters, func(_ context.Context, st *dohost.State) (*reporter, error) { return &reporter{st}, nil }, nil))
		for text, want := range ends {
			attrs := []slog.Attr{slog.String("text", text), slog.Any("err", errors.New(text)), slog.Group("group", "text", text), slog.Int("n", 1)}
			if err := reporters.Get(h, "a").Do(t.Context(), func(ctx context.Context, r *reporter) error { return r.write(ctx, "long", attrs...) }); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for i, a := range []string{got[0].Value.String(), got[1].Value.Any().(error).Error(), got[2].Value.Group()[0].Value.String()} {
				if a != want {
					t.Errorf("attribute %d: %d bytes %.10q became %d bytes, want %d", i, len(text), text, len(a), len(want))
				}
			}
			if len(got) != 4 || got[3].Value.Int64() != 1 || attrs[0].Value.String() != text {
				t.Errorf("reported %d attributes", len(got))
			}
		}
	})
}

// brokenError is an error whose text panics.
type brokenError struct{}

func (brokenError) Error() string { panic("no text") }

func TestReportKeepsShortErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []slog.Attr
		h := open(t, &dohost.Options{Listener: dohost.Listener{
			Service: func(_ dohost.ID, _ string, attrs ...slog.Attr) { got = attrs },
		}}, dohost.Bind(reporters, func(_ context.Context, st *dohost.State) (*reporter, error) { return &reporter{st}, nil }, nil))
		for _, want := range []error{fmt.Errorf("short: %w", dohost.ErrClosed), brokenError{}, (*dohost.PublicError)(nil)} {
			err := reporters.Get(h, "a").Do(t.Context(), func(ctx context.Context, r *reporter) error {
				return r.write(ctx, "short", slog.Any("err", want))
			})
			synctest.Wait()
			if err != nil || got[0].Value.Any() != want {
				t.Errorf("%T became %T; %v", want, got[0].Value.Any(), err)
			}
		}
	})
}

package dohost_test

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/objectstore"
)

// ending is an object whose methods end their incarnations.
type ending struct {
	st   *dohost.State
	runs map[string]int // by method, of all incarnations
}

const endings dohost.Namespace[ending] = "ending"

func (e *ending) abort(ctx context.Context, _ dohost.Bookmark) (int, error) {
	e.runs["abort"]++
	return 0, e.st.Abort(ctx, errors.New("wanted"), nil)
}

func (e *ending) restore(ctx context.Context, to dohost.Bookmark) (int, error) {
	e.runs["restore"]++
	return 0, e.st.RestoreTo(ctx, dohost.RestorePoint{Bookmark: to})
}

func (e *ending) exit(context.Context, dohost.Bookmark) (int, error) {
	e.runs["exit"]++
	goruntime.Goexit()
	return 0, nil
}

func (e *ending) exclusive(ctx context.Context, _ dohost.Bookmark) (int, error) {
	e.runs["exclusive"]++
	return 0, dohost.Exclusive(ctx, func(ctx context.Context) error { return dohost.Sleep(ctx, time.Hour) })
}

func (e *ending) bookmark(ctx context.Context, _ int) (dohost.Bookmark, error) {
	return e.st.Bookmark(ctx)
}

// toHost is a Remote whose other host has all objects.
type toHost struct{ *dohost.Host }

func (h toHost) InvokeRemote(ctx context.Context, c *dohost.RemoteCall) ([]byte, error) {
	return h.AnswerCall(arrived{ctx}, c), nil
}

// TestCallThatEndsItsIncarnationIsRepeatedAFewTimes calls methods that end their incarnations, from their host and from another one.
func TestCallThatEndsItsIncarnationIsRepeatedAFewTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		a, err := objectstore.OpenDirArchive(fs, "/archive")
		if err != nil {
			t.Fatal(err)
		}
		runs := map[string]int{}
		class := dohost.Bind(endings, func(_ context.Context, st *dohost.State) (*ending, error) { return &ending{st, runs}, nil }, nil,
			dohost.Expose("abort", (*ending).abort), dohost.Expose("restore", (*ending).restore), dohost.Expose("exit", (*ending).exit),
			dohost.Expose("exclusive", (*ending).exclusive))
		h := openOn(t, fs, &dohost.Options{Ship: a, Grace: -1}, class)
		front := openOn(t, objectstore.NewMemFS(), &dohost.Options{Remote: toHost{h}, Holds: func(dohost.ID) bool { return false }, Grace: -1}, class)
		time.Sleep(5 * time.Second) // the first base
		cases := 0
		for _, from := range []*dohost.Host{h, front} {
			for method, most := range map[string]int{"abort": 1, "restore": 1, "exit": 3, "exclusive": 3} {
				cases++
				b, err := dohost.Call(t.Context(), endings.Get(h, "x"), (*ending).bookmark, 0)
				if err != nil {
					t.Fatal(err)
				}
				clear(runs)
				_, err = dohost.Invoke[int](t.Context(), endings.Get(from, "x"), method, b, &dohost.InvokeOptions{CallID: fmt.Sprint(cases), Keep: time.Hour})
				e, _ := errors.AsType[*dohost.Error](err)
				if !errors.Is(err, dohost.ErrFenced) || e.Outcome != dohost.OutcomeUnknown || runs[method] < 1 || runs[method] > most {
					t.Errorf("%s, on another host %v: %v after %d runs; want %d", method, from == front, err, runs[method], most)
				}
			}
		}
		if cases != 8 {
			t.Errorf("%d cases", cases)
		}
	})
}

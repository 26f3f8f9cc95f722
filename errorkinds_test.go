package dohost_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/examples/counter"
	"github.com/dohost/dohost/objectstore"
)

// noSocketObject is an object that answers requests over HTTP and has no sockets.
type noSocketObject struct {
	st       *dohost.State
	accepted *error
}

const noSocketObjects dohost.Namespace[noSocketObject] = "mute"

func (m *noSocketObject) serve(w http.ResponseWriter, r *http.Request) {
	_, *m.accepted = m.st.Accept(w, r, nil)
}

// failingObject is an object whose callers meet errors.
type failingObject struct{ st *dohost.State }

const (
	failingObjects dohost.Namespace[failingObject] = "faulty"
	broken         dohost.Namespace[failingObject] = "broken" // its constructor fails
	unbound        dohost.Namespace[failingObject] = "nowhere"
)

var errOfObject = errors.New("a fault of the object")

var (
	failingRows = dohost.Collection[order]{
		Name: "rows", Key: func(o order) string { return o.ID }, Feed: &dohost.Feed{Name: "feed", Keep: 1},
	}
	unkeyedRows = dohost.Collection[order]{Name: "keyless"}
)

func failingClasses() []dohost.Class {
	return []dohost.Class{
		dohost.Bind(failingObjects, func(_ context.Context, st *dohost.State) (*failingObject, error) { return &failingObject{st}, nil },
			&dohost.Handlers[failingObject]{Private: func(name string) bool { return name == "private" }},
			dohost.Expose("fail", func(*failingObject, context.Context, int) (int, error) { return 0, errOfObject })),
		dohost.Bind(broken, func(context.Context, *dohost.State) (*failingObject, error) { return nil, errOfObject }, nil),
		dohost.Bind(noSocketObjects, func(_ context.Context, st *dohost.State) (*noSocketObject, error) {
			return &noSocketObject{st: st}, nil
		},
			&dohost.Handlers[noSocketObject]{OnHTTP: (*noSocketObject).serve}),
		counter.Class(),
		guardedClass(func(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
			if r.ID.Name == "denied" {
				return dohost.Access{}, errOfObject
			}
			return dohost.Access{Rights: dohost.RightsReadWrite}, nil
		}),
	}
}

// inside runs fn in an object and returns its error as the object's code gets it.
func inside(t *testing.T, h *dohost.Host, fn func(context.Context, *failingObject) error) (err error) {
	t.Helper()
	failingObjects.Get(h, "inside").Do(t.Context(), func(ctx context.Context, f *failingObject) error {
		err = fn(ctx, f)
		return nil
	})
	return err
}

// situations provoke the errors that users meet.
var situations = []struct {
	name    string
	provoke func(t *testing.T, h *dohost.Host) error
	kind    error
	code    string
	status  int
}{
	{"a class that is not bound", func(t *testing.T, h *dohost.Host) error {
		return unbound.Get(h, "a").Do(t.Context(), func(context.Context, *failingObject) error { return nil })
	}, dohost.ErrNotFound, "no_class", 404},
	{"a class that is not bound, from outside", func(t *testing.T, h *dohost.Host) error {
		_, err := h.AuthorizeCall(httptest.NewRequest("POST", "/", nil), unbound.Get(h, "a").ID(), "fail")
		return err
	}, dohost.ErrNotFound, "no_class", 404},
	{"no such method", func(t *testing.T, h *dohost.Host) error {
		_, err := h.Invoke(t.Context(), failingObjects.Get(h, "a").ID(), "none", nil)
		return err
	}, dohost.ErrNotFound, "no_method", 404},
	{"no OnAdmin", func(t *testing.T, h *dohost.Host) error {
		_, err := h.Operate(t.Context(), failingObjects.Get(h, "a").ID(), &dohost.AdminRequest{Action: dohost.ActionCancel, Kind: "x", ID: "1"})
		return err
	}, dohost.ErrNotFound, "no_method", 404},
	{"a private object", func(t *testing.T, h *dohost.Host) error {
		_, err := h.Invoke(t.Context(), failingObjects.Get(h, "private").ID(), "fail", nil)
		return err
	}, dohost.ErrForbidden, "private", 403},
	{"no access", func(t *testing.T, h *dohost.Host) error {
		_, err := h.Invoke(t.Context(), guardedObjects.Get(h, "a").ID(), "put", []byte(`"v"`))
		return err
	}, dohost.ErrUnauthenticated, "unauthenticated", 401},
	{"an access without rights", func(t *testing.T, h *dohost.Host) error {
		_, err := h.Invoke(dohost.GrantAccess(t.Context(), dohost.Access{}), guardedObjects.Get(h, "a").ID(), "put", []byte(`"v"`))
		return err
	}, dohost.ErrForbidden, "forbidden", 403},
	{"an access that is refused", func(t *testing.T, h *dohost.Host) error {
		_, err := h.AuthorizeCall(httptest.NewRequest("POST", "/", nil), guardedObjects.Get(h, "denied").ID(), "put")
		return err
	}, dohost.ErrForbidden, "forbidden", 403},
	{"a read-only access", func(t *testing.T, h *dohost.Host) error {
		_, err := h.Invoke(dohost.GrantAccess(t.Context(), dohost.Access{Rights: dohost.RightsReadOnly}), guardedObjects.Get(h, "a").ID(), "put", []byte(`"v"`))
		return err
	}, dohost.ErrForbidden, "read_only", 403},
	{"too many new objects", func(t *testing.T, h *dohost.Host) error {
		ctx := dohost.CheckCreation(t.Context(), func(*dohost.AccessRequest) error { return dohost.ErrOverloaded })
		_, err := h.AuthorizeCall(httptest.NewRequest("POST", "/", nil).WithContext(ctx), guardedObjects.Get(h, "new").ID(), "put")
		return err
	}, dohost.ErrOverloaded, "too_many_new", 429},
	{"no alarm handler", func(t *testing.T, h *dohost.Host) error {
		return h.SetAlarm(t.Context(), failingObjects.Get(h, "a").ID(), bubbleStart)
	}, dohost.ErrMisuse, "no_alarm_handler", 400},
	{"no alarm handler, inside", func(t *testing.T, h *dohost.Host) error {
		return inside(t, h, func(ctx context.Context, f *failingObject) error { return f.st.SetAlarm(ctx, bubbleStart) })
	}, dohost.ErrMisuse, "no_alarm_handler", 400},
	{"no socket handler", func(t *testing.T, h *dohost.Host) (err error) {
		noSocketObjects.Get(h, "a").Do(t.Context(), func(_ context.Context, m *noSocketObject) error { m.accepted = &err; return nil })
		h.ServeObject(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), noSocketObjects.Get(h, "a").ID())
		return err
	}, dohost.ErrNotFound, "internal", 500},
	{"a socket that is closed", func(t *testing.T, _ *dohost.Host) (err error) {
		e := &socketHooks{message: func(_ *socketObject, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
			err = errors.Join(s.Close(ctx, 4000, ""), s.Send(ctx, f))
			return nil
		}}
		d := openSocketServer(t, e, nil)
		ws, _ := d.dial(t, "a")
		sendText(t, ws, "hello")
		synctest.Wait()
		return err
	}, dohost.ErrClosed, "internal", 500},
	{"an absent object", func(t *testing.T, h *dohost.Host) error {
		return h.Export(t.Context(), failingObjects.Get(h, "absent").ID(), &bytes.Buffer{})
	}, dohost.ErrNotFound, "no_object", 404},
	{"a stream that is no export", func(t *testing.T, h *dohost.Host) error {
		return h.Import(t.Context(), failingObjects.Get(h, "imported").ID(), strings.NewReader("no export"))
	}, dohost.ErrDamaged, "bad_export", 400},
	{"an import of an existing object", func(t *testing.T, h *dohost.Host) error {
		alice := counter.Counters.Get(h, "alice")
		var export bytes.Buffer
		if _, err := dohost.Call(t.Context(), alice, (*counter.Counter).Add, 1); err != nil {
			t.Fatal(err)
		}
		h.Evict(alice.ID(), dohost.EndFence)
		if err := h.Export(t.Context(), alice.ID(), &export); err != nil {
			t.Fatal(err)
		}
		return h.Import(t.Context(), alice.ID(), &export)
	}, dohost.ErrConflict, "exists", 409},
	{"a constructor that fails", func(t *testing.T, h *dohost.Host) error {
		return broken.Get(h, "a").Do(t.Context(), func(context.Context, *failingObject) error { return nil })
	}, nil, "constructor", 500},
	{"a method's error", func(t *testing.T, h *dohost.Host) error {
		_, err := h.Invoke(t.Context(), failingObjects.Get(h, "a").ID(), "fail", []byte("1"))
		return err
	}, nil, "failed", 500},
	{"an argument", func(t *testing.T, h *dohost.Host) error {
		_, err := h.Invoke(t.Context(), failingObjects.Get(h, "a").ID(), "fail", []byte("{"))
		return err
	}, nil, "bad_argument", 400},
	{"a name", func(t *testing.T, h *dohost.Host) error {
		return failingObjects.Get(h, "").Do(t.Context(), func(context.Context, *failingObject) error { return nil })
	}, nil, "bad_name", 400},
	{"a panic", func(t *testing.T, h *dohost.Host) error {
		return failingObjects.Get(h, "a").Do(t.Context(), func(context.Context, *failingObject) error { panic("oh") })
	}, dohost.ErrFenced, "fenced", 500},
	{"an abort", func(t *testing.T, h *dohost.Host) error {
		return failingObjects.Get(h, "a").Do(t.Context(), func(ctx context.Context, f *failingObject) error { return f.st.Abort(ctx, errOfObject, nil) })
	}, dohost.ErrFenced, "fenced", 500},
	{"a caller that leaves", func(t *testing.T, h *dohost.Host) error {
		ctx, cancel := context.WithCancel(t.Context())
		return failingObjects.Get(h, "a").Do(ctx, func(ctx context.Context, _ *failingObject) error {
			cancel()
			return dohost.Sleep(ctx, 1)
		})
	}, nil, "canceled", 499},
	{"an overloaded object", func(t *testing.T, h *dohost.Host) error {
		busy, done := failingObjects.Get(h, "busy"), make(chan struct{})
		results := make(chan error, 2)
		for range 2 {
			go func() {
				results <- busy.Do(t.Context(), func(context.Context, *failingObject) error { <-done; return nil })
			}()
			synctest.Wait()
		}
		err := <-results
		close(done)
		if err := <-results; err != nil {
			t.Error(err)
		}
		return err
	}, dohost.ErrOverloaded, "overloaded", 503},
	{"a deadlock", func(t *testing.T, h *dohost.Host) error {
		return inside(t, h, func(ctx context.Context, f *failingObject) error {
			return dohost.Exclusive(ctx, func(ctx context.Context) error {
				return failingObjects.Get(h, "inside").Do(ctx, func(context.Context, *failingObject) error { return nil })
			})
		})
	}, dohost.ErrMisuse, "deadlock", 500},
	{"no turn", func(t *testing.T, h *dohost.Host) error {
		return inside(t, h, func(_ context.Context, f *failingObject) error {
			return dohost.Put(t.Context(), f.st.Storage(), "k", 1)
		})
	}, dohost.ErrMisuse, "internal", 500},
	{"a turn that was given up", func(t *testing.T, h *dohost.Host) error {
		return inside(t, h, func(ctx context.Context, f *failingObject) error {
			return dohost.Await(ctx, func(context.Context) error { return dohost.Put(ctx, f.st.Storage(), "k", 1) })
		})
	}, dohost.ErrMisuse, "internal", 500},
	{"a wait inside a transaction", func(t *testing.T, h *dohost.Host) error {
		return inside(t, h, func(ctx context.Context, _ *failingObject) error {
			return dohost.Transaction(ctx, dohost.AwaitDurable)
		})
	}, dohost.ErrMisuse, "internal", 500},
	{"an iterator after its turn", func(t *testing.T, h *dohost.Host) error {
		return inside(t, h, func(ctx context.Context, f *failingObject) error {
			for i := range 2 {
				if err := dohost.Put(ctx, f.st.Storage(), fmt.Sprint(i), i); err != nil {
					return err
				}
			}
			for _, err := range dohost.All[int](ctx, f.st.Storage(), nil) {
				if err := errors.Join(err, dohost.AwaitDurable(ctx)); err != nil {
					return err
				}
			}
			return nil
		})
	}, dohost.ErrMisuse, "internal", 500},
	{"a collection without a key", func(t *testing.T, h *dohost.Host) error {
		return inside(t, h, func(ctx context.Context, f *failingObject) error {
			return unkeyedRows.Put(ctx, f.st.Storage(), order{})
		})
	}, dohost.ErrMisuse, "internal", 500},
	{"a row that exists", func(t *testing.T, h *dohost.Host) error {
		return inside(t, h, func(ctx context.Context, f *failingObject) error {
			return errors.Join(failingRows.Put(ctx, f.st.Storage(), order{ID: "a"}), failingRows.Insert(ctx, f.st.Storage(), order{ID: "a"}))
		})
	}, dohost.ErrConflict, "internal", 500},
	{"a row that is absent", func(t *testing.T, h *dohost.Host) error {
		return inside(t, h, func(ctx context.Context, f *failingObject) error {
			_, err := failingRows.Update(ctx, f.st.Storage(), "absent", func(*order) error { return nil })
			return err
		})
	}, dohost.ErrNotFound, "internal", 500},
	{"a row of another version", func(t *testing.T, h *dohost.Host) error {
		return inside(t, h, func(ctx context.Context, f *failingObject) error {
			return errors.Join(failingRows.Put(ctx, f.st.Storage(), order{ID: "b"}), failingRows.DeleteIf(ctx, f.st.Storage(), "b", 17))
		})
	}, dohost.ErrConflict, "internal", 500},
	{"a position that was trimmed", func(t *testing.T, h *dohost.Host) error {
		return inside(t, h, func(ctx context.Context, f *failingObject) error {
			for range 300 {
				if err := failingRows.Put(ctx, f.st.Storage(), order{ID: "c"}); err != nil {
					return err
				}
			}
			_, err := failingRows.Feed.Read(ctx, f.st.Storage(), dohost.Position{}, 0)
			return err
		})
	}, dohost.ErrNotFound, "internal", 500},
	{"a position of another history", func(t *testing.T, h *dohost.Host) error {
		return inside(t, h, func(ctx context.Context, f *failingObject) error {
			_, err := failingRows.Feed.Read(ctx, f.st.Storage(), dohost.Position{Log: "another"}, 0)
			return err
		})
	}, dohost.ErrNotFound, "internal", 500},
	{"a key that is too long", func(t *testing.T, h *dohost.Host) error {
		return inside(t, h, func(ctx context.Context, f *failingObject) error {
			return dohost.Put(ctx, f.st.Storage(), strings.Repeat("k", 1<<16), 1)
		})
	}, nil, "too_large", 413},
	{"too many keys", func(t *testing.T, h *dohost.Host) error {
		return inside(t, h, func(ctx context.Context, f *failingObject) error {
			_, err := f.st.Storage().DeleteMany(ctx, make([]string, 1000)...)
			return err
		})
	}, nil, "too_large", 413},
	{"an empty key", func(t *testing.T, h *dohost.Host) error {
		return inside(t, h, func(ctx context.Context, f *failingObject) error {
			return failingRows.Put(ctx, f.st.Storage(), order{})
		})
	}, nil, "too_large", 413},
	{"a value of another type", func(t *testing.T, h *dohost.Host) error {
		return inside(t, h, func(ctx context.Context, f *failingObject) error {
			if err := dohost.Put(ctx, f.st.Storage(), "text", "text"); err != nil {
				return err
			}
			_, _, err := dohost.Get[int](ctx, f.st.Storage(), "text")
			return err
		})
	}, nil, "internal", 500},
	{"a directory of another host", func(t *testing.T, _ *dohost.Host) error {
		dir := t.TempDir()
		h, err := dohost.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		_, err = dohost.Open(dir, nil)
		return err
	}, dohost.ErrConflict, "internal", 500},
	{"a directory of something else", func(t *testing.T, _ *dohost.Host) error {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, "notes.txt"), "x")
		_, err := dohost.Open(dir, nil)
		return err
	}, dohost.ErrDamaged, "internal", 500},
	{"a store without its database", func(t *testing.T, _ *dohost.Host) error {
		_, err := dohost.Open(storeWithout(t, "db"), nil)
		return err
	}, dohost.ErrNotFound, "internal", 500},
	{"a store of another format", func(t *testing.T, _ *dohost.Host) error {
		dir := storeWithout(t, "")
		writeFile(t, filepath.Join(dir, "DOHOST"), "dohost store, format 7\n")
		_, err := dohost.Open(dir, nil)
		return err
	}, dohost.ErrDamaged, "internal", 500},
	{"a block that is damaged", func(t *testing.T, h *dohost.Host) error {
		return &dohost.Error{Op: "read", ID: failingObjects.Get(h, "a").ID(), Err: &dohost.DamageError{Damage: dohost.Damage{File: "x"}}}
	}, dohost.ErrDamaged, "damaged", 500},
	{"a disk that is full", func(t *testing.T, h *dohost.Host) error {
		return &dohost.Error{Op: "put", ID: failingObjects.Get(h, "a").ID(), Err: fmt.Errorf("writing: %w", objectstore.ErrNoSpace)}
	}, dohost.ErrNoSpace, "no_space", 507},
	{"a closed host", func(t *testing.T, h *dohost.Host) error {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		return failingObjects.Get(h, "a").Do(t.Context(), func(context.Context, *failingObject) error { return nil })
	}, dohost.ErrClosed, "closed", 503},
}

var allKinds = []error{
	dohost.ErrFenced, dohost.ErrOverloaded, dohost.ErrClosed, dohost.ErrNotFound, dohost.ErrConflict, dohost.ErrUnauthenticated,
	dohost.ErrForbidden, dohost.ErrMisuse, dohost.ErrNoSpace, dohost.ErrDamaged,
}

// TestErrorsHaveOneKindAndTheirCode provokes errors, and compares the code and the status that they have had since
// before they had kinds. Their texts begin with the name of the package.
func TestErrorsHaveOneKindAndTheirCode(t *testing.T) {
	for _, kind := range allKinds {
		if !strings.HasPrefix(kind.Error(), "dohost: ") {
			t.Errorf("the text of a kind is %q", kind)
		}
	}
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := s.provoke(t, open(t, &dohost.Options{MaxEvents: 1}, failingClasses()...))
				if err == nil {
					t.Fatal("no error")
				}
				for _, kind := range allKinds {
					if errors.Is(err, kind) != (kind == s.kind) {
						t.Errorf("%v: it is %q: %v; want %v", err, kind, errors.Is(err, kind), s.kind)
					}
				}
				if text := err.Error(); !strings.HasPrefix(text, "dohost: ") {
					t.Errorf("the text is %q", text)
				}
				if b, status := dohost.DescribeError(err); b.Code != s.code || status != s.status {
					t.Errorf("%v: %s %d, want %s %d", err, b.Code, status, s.code, s.status)
				}
			})
		})
	}
}

var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// storeWithout returns the directory of a closed store, without the named part of it.
func storeWithout(t *testing.T, part string) string {
	t.Helper()
	dir := t.TempDir()
	h, err := dohost.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if part != "" {
		if err := os.RemoveAll(filepath.Join(dir, part)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

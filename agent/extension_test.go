package agent_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// An extension's hooks run before the class's. The class does not see an event that the extension handles.
func TestExtensionHooksRunBeforeTheClass(t *testing.T) {
	closed := make(chan string, 4)
	extension := func(name string) agent.Entry[wireAgent] {
		say := func(r *wireAgent, ctx context.Context, c *agent.Conn, text string) error {
			return r.BroadcastTo(ctx, dohost.Frame{Text: true, Data: []byte(`"` + name + " " + text + `"`)}, []*agent.Conn{c})
		}
		return agent.Extend(agent.Extension[wireAgent]{
			Connect:   func(r *wireAgent, ctx context.Context, c *agent.Conn) error { return say(r, ctx, c, "greets") },
			Connected: func(r *wireAgent, ctx context.Context, c *agent.Conn) error { return say(r, ctx, c, "follows") },
			Message: func(r *wireAgent, ctx context.Context, c *agent.Conn, f dohost.Frame) (bool, error) {
				if string(f.Data) != name {
					return false, nil
				}
				return true, say(r, ctx, c, "hears")
			},
			Request: func(_ *wireAgent, w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, name) {
					return false
				}
				_, _ = io.WriteString(w, name)
				return true
			},
			Close: func(_ *wireAgent, _ context.Context, c *agent.Conn) { closed <- name + " " + c.ID() },
		})
	}
	s := serve(t, wireClass(nil, extension("one"), extension("two"), agent.Extend(agent.Extension[wireAgent]{})))
	c := s.dial(t, "/r?_pk=me")
	first := append([]string{`"one greets"`, `"two greets"`}, greeting("r", `{"title":"untitled","count":0}`)...)
	first = append(first, `"one follows"`, `"two follows"`)
	c.want(first...)
	other := s.dial(t, "/r?_pk=you")
	other.want(first...)
	for _, frame := range []string{"two", "three"} {
		c.send(frame)
	}
	c.want(`"two hears"`, "heard three")
	other.send("four")
	other.want("heard four")
	for path, want := range map[string]string{"/r/two": "two", "/r/three": "Not implemented\n"} {
		res, err := http.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil || string(body) != want {
			t.Errorf("%s: %q, %v", path, body, err)
		}
	}
	if err := c.ws.CloseNow(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one me", "two me"} {
		select {
		case got := <-closed:
			wantEqual(t, "closed", got, want)
		case <-time.After(10 * time.Second):
			t.Fatal("no Close was called")
		}
	}
}

// A fiber of a quiet kind resumes without the class's hooks, and they are not called for its end.
func TestFiberOfQuietKindCallsNoHooks(t *testing.T) {
	for name, quiet := range map[string]bool{"quiet": true, "others": false} {
		t.Run(name, func(t *testing.T) {
			w := &fiberTest{
				run: func(w *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error { return sleep(ctx, time.Minute) },
				recovery: func(w *fiberAgent, ctx context.Context, fs []*agent.InterruptedFiber) error {
					w.record("asked")
					return nil
				},
				ended: func(w *fiberAgent, ctx context.Context, i agent.FiberInfo) error {
					w.record("ended %s", i.Status)
					return nil
				},
			}
			runFiberTest(t, w, &agent.KindOptions{Quiet: quiet}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				s := start(t, h, 0, nil)
				h.Advance(time.Second)
				evict(h)
				h.Advance(2 * time.Minute)
				want, events := agent.FiberCompleted, ""
				if !quiet {
					want, events = agent.FiberFailed, "30s asked;30s ended failed"
				}
				wantEqual(t, "status", inspect(t, h, s.ID).Status, want)
				wantEqual(t, "events", strings.Join(w.events, ";"), events)
			})
		})
	}
}

// An extension's hook runs for a cancelled fiber, also before its first step, in the same batch: if the hook
// fails or the batch is rolled back, the fiber is not cancelled.
func TestExtensionHookCommitsWithFiberCancellation(t *testing.T) {
	refused := errors.New("not this one")
	var cancelled []string
	refuse := false
	class := agent.Bind(fiberAgents, func(_ context.Context, a *agent.Agent[noState]) (*fiberAgent, error) { return &fiberAgent{a, nil}, nil }, nil,
		agent.Extend(agent.Extension[fiberAgent]{Cancelled: func(_ *fiberAgent, _ context.Context, f agent.FiberInfo) error {
			cancelled = append(cancelled, f.Name+" "+string(f.Status))
			if refuse {
				return refused
			}
			return nil
		}}),
		agent.OnFiber(testKind, func(_ *fiberAgent, ctx context.Context, _ *agent.Fiber[int]) error { return sleep(ctx, time.Minute) }, nil))
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		do(t, h, func(ctx context.Context, w *fiberAgent) error {
			for _, refuse = range []bool{true, false} {
				s, err := agent.StartFiber(ctx, w, testKind, 0, nil)
				if err != nil {
					return err
				}
				done, err := w.Fibers().Cancel(ctx, s.ID)
				if errors.Is(err, refused) != refuse || done == refuse {
					t.Errorf("refused %t: %t, %v", refuse, done, err)
				}
			}
			return nil
		})
		h.Advance(2 * time.Minute)
		do(t, h, func(ctx context.Context, w *fiberAgent) error {
			fs, err := w.Fibers().List(ctx, nil)
			wantEqual(t, "fibers", joinValues(len(fs), fs[0].Status, fs[1].Status), "2 cancelled completed")
			return err
		})
		wantEqual(t, "told", strings.Join(cancelled, ";"), "job cancelled;job cancelled")
	})
}

// An extension has an entry of its own, and sees the rows of the agent, those of its constructor included. Its error undoes the write.
func TestExtensionSeesRows(t *testing.T) {
	things := dohost.Collection[string]{Name: "things", Key: func(s string) string { return s }}
	refused := errors.New("not this one")
	var seen []string
	construct := func(ctx context.Context, a *agent.Agent[noState]) (*fiberAgent, error) {
		return &fiberAgent{a, nil}, things.Put(ctx, a.Storage(), "first")
	}
	class := agent.Bind(fiberAgents, construct, nil, agent.Extend(agent.Extension[fiberAgent]{
		Entries: []agent.Entry[fiberAgent]{
			agent.OnFiber(testKind, func(w *fiberAgent, ctx context.Context, _ *agent.Fiber[int]) error {
				return things.Put(ctx, w.Storage(), "of a fiber")
			}, nil),
		},
		RowWritten: func(ctx context.Context, a agent.Handle, w *dohost.RowWrite) error {
			if w.Collection != things.Name {
				return nil
			}
			if w.Key == "refused" {
				return refused
			}
			_, stored, err := things.Get(ctx, a.Storage(), w.Key)
			seen = append(seen, joinValues(w.Key, w.Deleted, stored))
			return err
		},
	}))
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		do(t, h, func(ctx context.Context, w *fiberAgent) error {
			if err := things.Put(ctx, w.Storage(), "refused"); !errors.Is(err, refused) {
				t.Errorf("a refused row: %v", err)
			}
			if _, ok, err := things.Get(ctx, w.Storage(), "refused"); ok || err != nil {
				t.Errorf("a refused row is stored: %t, %v", ok, err)
			}
			_, err := things.Delete(ctx, w.Storage(), "first")
			_, startErr := agent.StartFiber(ctx, w, testKind, 0, nil)
			return errors.Join(err, startErr)
		})
		h.Advance(time.Second)
		wantEqual(t, "seen", strings.Join(seen, ";"), "first false true;first true false;of a fiber false true")
	})
	_, err := dohost.Open(t.TempDir(), nil, agent.Bind(fiberAgents, construct, nil,
		agent.Extend(agent.Extension[fiberAgent]{Entries: make([]agent.Entry[fiberAgent], 1)})))
	if err == nil || !strings.Contains(err.Error(), "entry 0 of an extension is the zero Entry") {
		t.Error(err)
	}
}

package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
	"github.com/dohost/dohost/ledger"
	"github.com/dohost/dohost/pool"
)

// booking is the input of the tool of these tests.
type booking struct {
	Message string `json:"message"`
}

// bookTeam is a team with the tool "book".
func bookTeam(o chat.PoolToolOptions[booking], more ...chat.Tool) *team {
	return &team{extra: append([]chat.Tool{chat.PoolTool("book", "Books a seat.", &o)}, more...)}
}

// withPool runs f with a host that has the team and pools.
func withPool(t *testing.T, tm *team, f func(t *testing.T, h *dohosttest.Host)) {
	t.Helper()
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{tm.class(), pool.Class(nil)}}, f)
}

// inPool calls a method of the pool "tools", which must succeed.
func inPool[In, Out any](t *testing.T, h *dohosttest.Host, m func(*pool.Pool, context.Context, In) (Out, error), in In) Out {
	t.Helper()
	out, err := dohost.Call(t.Context(), pool.Pools.Get(h, "tools"), m, in)
	if err != nil {
		t.Errorf("%+v: %v", in, err)
	}
	return out
}

// claimBooking makes a connection claim and start the oldest task.
func claimBooking(t *testing.T, h *dohosttest.Host, conn string) (pool.Task, pool.ClaimRef) {
	t.Helper()
	inPool(t, h, (*pool.Pool).Join, pool.JoinRequest{Role: "book", Conn: conn})
	c := inPool(t, h, (*pool.Pool).Claim, pool.ClaimRequest{Role: "book", Conn: conn})
	if c.Task == nil {
		t.Fatal("there is no task")
	}
	hold := pool.ClaimRef{Task: c.Task.ID, Conn: conn, Fence: c.Task.Fence}
	inPool(t, h, (*pool.Pool).Start, hold)
	return *c.Task, hold
}

// askForBooking asks the member a, and waits until its calls are handed over.
func askForBooking(t *testing.T, h *dohosttest.Host, text string) {
	t.Helper()
	if err := askMember(t.Context(), h, "a", text); err != nil {
		t.Fatal(err)
	}
	h.Advance(time.Second)
}

// bookingState returns the state of the last call of the member a that operators see, also after its end.
func bookingState(t *testing.T, h *dohosttest.Host) (states []string) {
	t.Helper()
	inMember(t, h, "a", func(ctx context.Context, m *member) error {
		for c, err := range chat.Calls(ctx, m) {
			if states = append(states, c.Tool+" "+string(c.State)); err != nil {
				return err
			}
		}
		return nil
	})
	return states
}

func TestPoolTool(t *testing.T) {
	withPool(t, bookTeam(chat.PoolToolOptions[booking]{}), func(t *testing.T, h *dohosttest.Host) {
		askForBooking(t, h, "tool book: seat 1 & tool book: seat 2")
		if states := bookingState(t, h); fmt.Sprint(states) != "[book external book external]" {
			t.Errorf("%q", states)
		}
		for i := range 2 {
			task, hold := claimBooking(t, h, "w")
			if want := fmt.Sprintf(`{"message":"seat %d"}`, i+1); task.Text != want || !task.Once || task.Key == "" {
				t.Errorf("%+v, want %s", task, want)
			}
			h.Evict(dohost.ID{Class: "member", Name: "a"}, dohost.EndFence)
			inPool(t, h, (*pool.Pool).Handoff, pool.HandoffRequest{ClaimRef: hold, Result: json.RawMessage(fmt.Sprintf(`{"seat":%d}`, i+1))})
			h.Advance(5 * time.Second)
		}
		wantTranscript(t, h, "a", "user: tool book: seat 1 & tool book: seat 2", `assistant: a heard ({"seat":1}, {"seat":2})`)
	})
}

// TestPoolToolFailures compares the results of calls whose tasks fail.
func TestPoolToolFailures(t *testing.T) {
	once, again := chat.PoolToolOptions[booking]{}, chat.PoolToolOptions[booking]{Policy: ledger.PolicyIdempotent}
	lapse := func(t *testing.T, h *dohosttest.Host, _ pool.ClaimRef) { h.Advance(10 * time.Minute) }
	for name, c := range map[string]struct {
		o    chat.PoolToolOptions[booking]
		end  func(t *testing.T, h *dohosttest.Host, hold pool.ClaimRef)
		want string
		call chat.CallState // empty: the call has not ended
	}{
		"by the worker": {once, func(t *testing.T, h *dohosttest.Host, hold pool.ClaimRef) {
			inPool(t, h, (*pool.Pool).Fail, pool.FailRequest{ClaimRef: hold, Error: "no seat"})
		}, "no seat", chat.CallFailed},
		"the worker is gone":            {once, lapse, "the lease of its worker has lapsed", chat.CallUnknown},
		"the worker is gone, and again": {again, lapse, "", ""},
		"cancelled": {again, func(t *testing.T, h *dohosttest.Host, hold pool.ClaimRef) {
			inPool(t, h, (*pool.Pool).Cancel, pool.CancelRequest{Task: hold.Task, Reason: "not today"})
		}, "not today", chat.CallUnknown},
		"a result that is too deep": {once, func(t *testing.T, h *dohosttest.Host, hold pool.ClaimRef) {
			deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
			inPool(t, h, (*pool.Pool).Handoff, pool.HandoffRequest{ClaimRef: hold, Result: json.RawMessage(deep)})
		}, "its result is not usable", chat.CallUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			withPool(t, bookTeam(c.o), func(t *testing.T, h *dohosttest.Host) {
				askForBooking(t, h, "tool book: x")
				_, hold := claimBooking(t, h, "w")
				c.end(t, h, hold)
				h.Advance(5 * time.Second)
				if c.call == "" {
					if states := bookingState(t, h); fmt.Sprint(states) != "[book external]" {
						t.Errorf("%q", states)
					}
					task, hold := claimBooking(t, h, "v")
					if task.Attempts != 2 || task.Once {
						t.Errorf("%+v", task)
					}
					inPool(t, h, (*pool.Pool).Handoff, pool.HandoffRequest{ClaimRef: hold})
					h.Advance(5 * time.Second)
					c.want = "a heard (null)"
				}
				got, err := transcriptOf(t.Context(), h, "a")
				if err != nil || len(got) != 2 || !strings.Contains(got[1], c.want) {
					t.Errorf("%q, %v", got, err)
				}
				if c.call != "" && lastCall(t, h) != c.call {
					t.Errorf("the call is %s, want %s", lastCall(t, h), c.call)
				}
			})
		})
	}
}

// lastCall returns the state of the call of the member a, by its key.
func lastCall(t *testing.T, h *dohosttest.Host) (s chat.CallState) {
	t.Helper()
	for r, err := range h.Host().Details(t.Context(), dohost.ID{Class: "member", Name: "a"}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Fields["tool"] == "book" {
			s = chat.CallState(r.State)
		}
	}
	return s
}

// TestPoolToolWithoutWorkerExpires has no worker. After Timeout the call is unknown, and no worker gets the task.
func TestPoolToolWithoutWorkerExpires(t *testing.T) {
	withPool(t, bookTeam(chat.PoolToolOptions[booking]{Timeout: 2 * time.Hour}), func(t *testing.T, h *dohosttest.Host) {
		askForBooking(t, h, "tool book: x")
		h.Advance(2*time.Hour - time.Minute)
		if states := bookingState(t, h); fmt.Sprint(states) != "[book external]" {
			t.Errorf("%q", states)
		}
		h.Advance(2 * time.Minute)
		wantTranscript(t, h, "a", "user: tool book: x",
			`assistant: a heard (The call was not done within 2h0m0s by a worker of the role "book". Whether it took effect is not known.)`)
		wantCancelled(t, h)
	})
}

// wantCancelled checks that the task of the only call is cancelled.
func wantCancelled(t *testing.T, h *dohosttest.Host) {
	t.Helper()
	list := inPool(t, h, (*pool.Pool).Tasks, pool.ListQuery{Role: "book"})
	if len(list.Tasks) != 1 || list.Tasks[0].Status != pool.StatusFailed || list.Tasks[0].Reason != "the call has ended" {
		t.Errorf("%+v", list.Tasks)
	}
}

// TestPoolToolOfADeletedCall deletes a call that waits: with the conversation, or by a message without it. Its task is cancelled.
func TestPoolToolOfADeletedCall(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, m *member) error{
		"clear": func(ctx context.Context, m *member) error { return chat.Clear(ctx, m) },
		"another message": func(ctx context.Context, m *member) error {
			list, err := chat.Messages(ctx, m, 1)
			if err != nil || len(list) != 1 {
				return errors.Join(err, fmt.Errorf("%d messages", len(list)))
			}
			return chat.SetMessages(ctx, m, []chat.Message{chat.Text(list[0].ID, chat.RoleAssistant, "never mind")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			withPool(t, bookTeam(chat.PoolToolOptions[booking]{}), func(t *testing.T, h *dohosttest.Host) {
				askForBooking(t, h, "tool book: x")
				inMember(t, h, "a", end)
				h.Advance(time.Second)
				wantCancelled(t, h)
			})
		})
	}
}

// TestPoolToolEndsBeforeItsTask ends a call in other ways than by its task. The task is cancelled, and its worker is refused.
func TestPoolToolEndsBeforeItsTask(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, m *member) error{
		"stop": func(ctx context.Context, m *member) error {
			_, err := chat.Cancel(ctx, m, "one")
			return err
		},
		"complete": func(ctx context.Context, m *member) error {
			for c, err := range chat.Calls(ctx, m) {
				if err != nil || c.Tool != "book" {
					continue
				}
				_, err = chat.Complete(ctx, m, &chat.Completion{Key: c.Key, Output: json.RawMessage(`"by hand"`)})
				return err
			}
			return errors.New("there is no call")
		},
	} {
		t.Run(name, func(t *testing.T) {
			withPool(t, bookTeam(chat.PoolToolOptions[booking]{}, sleeper("slow", 20*time.Second, false)), func(t *testing.T, h *dohosttest.Host) {
				askForBooking(t, h, "tool book: x & tool slow: y")
				_, hold := claimBooking(t, h, "w")
				inMember(t, h, "a", end)
				h.Advance(time.Minute)
				wantCancelled(t, h)
				if _, err := dohost.Call(t.Context(), pool.Pools.Get(h, "tools"), (*pool.Pool).Handoff, pool.HandoffRequest{ClaimRef: hold}); !errors.Is(err, pool.ErrClaimLost) {
					t.Error(err)
				}
				got, err := transcriptOf(t.Context(), h, "a")
				if answer := got[len(got)-1]; err != nil || name == "complete" && !strings.Contains(answer, `a heard ("by hand", `) || name == "stop" && lastCall(t, h) != chat.CallUnknown {
					t.Errorf("%q, the call is %s, %v", got, lastCall(t, h), err)
				}
			})
		})
	}
}

// TestPoolToolOfAnotherPool has a task of another pool with the key of a call and with its callback.
func TestPoolToolOfAnotherPool(t *testing.T) {
	withPool(t, bookTeam(chat.PoolToolOptions[booking]{}), func(t *testing.T, h *dohosttest.Host) {
		askForBooking(t, h, "tool book: x")
		task, hold := claimBooking(t, h, "w")
		err := pool.Pools.Get(h, "mallory").Do(t.Context(), func(ctx context.Context, p *pool.Pool) error {
			notify := &pool.Notification{To: dohost.ID{Class: "member", Name: "a"}, Callback: "chat.task"}
			posted, err := p.Post(ctx, pool.NewTask{Role: "book", Key: task.Key, CreateRole: true, Notify: notify})
			if err == nil {
				_, err = p.Cancel(ctx, pool.CancelRequest{Task: posted.ID, Reason: "forged"})
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		h.Advance(5 * time.Second)
		inPool(t, h, (*pool.Pool).Handoff, pool.HandoffRequest{ClaimRef: hold, Result: json.RawMessage(`"seat 1"`)})
		h.Advance(5 * time.Second)
		wantTranscript(t, h, "a", "user: tool book: x", `assistant: a heard ("seat 1")`)
	})
}

// TestPoolToolIsNotPosted has tasks that the pool cannot take.
func TestPoolToolIsNotPosted(t *testing.T) {
	long := func(context.Context, booking) (string, error) { return strings.Repeat("x", 65<<10), nil }
	refuse := func(context.Context, booking) (string, error) { return "", errors.New("no such seat") }
	for name, c := range map[string]struct {
		o       chat.PoolToolOptions[booking]
		classes []dohost.Class
		want    string
	}{
		"no class of pools": {chat.PoolToolOptions[booking]{}, nil, `was not posted to the pool "tools": there is no such pool`},
		"a long text":       {chat.PoolToolOptions[booking]{Text: long}, []dohost.Class{pool.Class(nil)}, "text has 66560 bytes: want at most 65536"},
		"an error of Text":  {chat.PoolToolOptions[booking]{Text: refuse}, []dohost.Class{pool.Class(nil)}, "no such seat"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &dohosttest.Options{Classes: append(c.classes, bookTeam(c.o).class())}
			dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
				askForBooking(t, h, "tool book: x")
				h.Advance(time.Minute)
				got, err := transcriptOf(t.Context(), h, "a")
				if err != nil || len(got) != 2 || !strings.Contains(got[1], c.want) || lastCall(t, h) != chat.CallFailed {
					t.Errorf("%q, the call is %s, %v", got, lastCall(t, h), err)
				}
			})
		})
	}
}

// TestPoolToolOptions makes tools with invalid options.
func TestPoolToolOptions(t *testing.T) {
	for want, tool := range map[string]chat.Tool{
		"the Policy is":                     chat.PoolTool("book", "", &chat.PoolToolOptions[booking]{Policy: ledger.PolicyReconcile}),
		"role is \"a b\"":                   chat.PoolTool("book", "", &chat.PoolToolOptions[booking]{Role: "a b"}),
		"name":                              chat.PoolTool("book", "", &chat.PoolToolOptions[booking]{Pool: strings.Repeat("x", 10_000)}),
		"ApproveWithin is for tools":        chat.PoolTool("book", "", &chat.PoolToolOptions[booking]{ApproveWithin: time.Hour}),
		"the input is of type string, want": chat.PoolTool("book", "", &chat.PoolToolOptions[string]{}),
	} {
		t.Run(want, func(t *testing.T) {
			withPool(t, &team{extra: []chat.Tool{tool}}, func(t *testing.T, h *dohosttest.Host) {
				askForBooking(t, h, "tool book: x")
				inMember(t, h, "a", func(ctx context.Context, m *member) error {
					r, _, err := chat.Wait(ctx, m, "one")
					if !strings.Contains(r.Error, want) {
						t.Errorf("%q, want %q", r.Error, want)
					}
					return err
				})
			})
		})
	}
}

// TestPoolToolAsync answers before the task has ended.
func TestPoolToolAsync(t *testing.T) {
	withPool(t, bookTeam(chat.PoolToolOptions[booking]{Async: true}), func(t *testing.T, h *dohosttest.Host) {
		askForBooking(t, h, "tool book: x")
		got, err := transcriptOf(t.Context(), h, "a")
		if err != nil || len(got) != 2 || !strings.Contains(got[1], `"status":"queued"`) {
			t.Errorf("%q, %v", got, err)
		}
		_, hold := claimBooking(t, h, "w")
		inPool(t, h, (*pool.Pool).Handoff, pool.HandoffRequest{ClaimRef: hold, Result: json.RawMessage(`"seat 3"`)})
		h.Advance(5 * time.Second)
		if s := lastCall(t, h); s != chat.CallCompleted {
			t.Errorf("the call is %s", s)
		}
	})
}

// desk records the bookings of workers, over all incarnations and processes of a run.
type desk struct {
	mu     sync.Mutex
	booked map[string]int // tasks started, by text
}

func (d *desk) book(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.booked[text]++
}

// poolCall calls a method of the pool until it has an answer, or is refused.
func poolCall[In, Out any](ctx context.Context, h *dohosttest.Host, m func(*pool.Pool, context.Context, In) (Out, error), in In) (out Out, err error) {
	refused := func(err error) bool { return errors.As(err, new(*dohost.PublicError)) }
	err = dohost.Retry(ctx, &dohost.RetryPolicy{MaxAttempts: -1, ShouldRetry: func(err error, _ int) bool { return !refused(err) }}, func(ctx context.Context) (err error) {
		out, err = dohost.Call(ctx, pool.Pools.Get(h, "tools"), m, in)
		return err
	})
	return out, err
}

// work books one seat after the other until two are booked, or the time is over.
func (d *desk) work(ctx context.Context, h *dohosttest.Host) error {
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		if _, err := poolCall(ctx, h, (*pool.Pool).Join, pool.JoinRequest{Role: "book", Conn: "w"}); err != nil {
			return err
		}
		c, err := poolCall(ctx, h, (*pool.Pool).Claim, pool.ClaimRequest{Role: "book", Conn: "w"})
		if err != nil {
			return err
		}
		if c.Task == nil {
			if len(d.booked) == 2 {
				return nil
			}
			continue
		}
		hold := pool.ClaimRef{Task: c.Task.ID, Conn: "w", Fence: c.Task.Fence}
		if _, err := poolCall(ctx, h, (*pool.Pool).Start, hold); err != nil {
			return err
		}
		d.book(c.Task.Text)
		if _, err := poolCall(ctx, h, (*pool.Pool).Handoff, pool.HandoffRequest{ClaimRef: hold, Result: json.RawMessage(c.Task.Text)}); err != nil {
			return err
		}
	}
	return errors.New("no two seats are booked")
}

// TestPoolToolAtEveryPoint has a model that books two seats, and a worker. The worker gets each call once, and the answer has both results.
func TestPoolToolAtEveryPoint(t *testing.T) {
	d := &desk{}
	tm := bookTeam(chat.PoolToolOptions[booking]{})
	s := dohosttest.Scenario{
		Classes: []dohost.Class{tm.class(), pool.Class(nil)}, Places: pointtest.Places(), SettleTime: time.Minute,
		Reset: func() { d.booked = map[string]int{} },
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			w := h.Client(func(ctx context.Context) error { return d.work(ctx, h) })
			ask := func(ctx context.Context) error { return askMember(ctx, h, "a", "tool book: 1 & tool book: 2") }
			err := dohost.Retry(ctx, &dohost.RetryPolicy{MaxAttempts: -1, ShouldRetry: func(error, int) bool { return true }}, ask)
			return errors.Join(err, w.Wait())
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			got, err := transcriptOf(ctx, h, "a")
			want := []string{"user: tool book: 1 & tool book: 2", `assistant: a heard ({"message":"1"}, {"message":"2"})`}
			if err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("%q, %v", got, err)
			}
			for text, n := range d.booked {
				if n != 1 {
					return fmt.Errorf("%s is booked %d times", text, n)
				}
			}
			return nil
		},
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 12, 25))
}

// TestEndOfATaskDoesNotRestoreADeletedAgent destroys an agent with a call that waits. The end of the task leaves no data of the agent.
func TestEndOfATaskDoesNotRestoreADeletedAgent(t *testing.T) {
	withPool(t, bookTeam(chat.PoolToolOptions[booking]{}), func(t *testing.T, h *dohosttest.Host) {
		askForBooking(t, h, "tool book: x")
		_, hold := claimBooking(t, h, "w")
		id := dohost.ID{Class: "member", Name: "a"}
		err := members.Get(h, "a").Do(t.Context(), func(ctx context.Context, m *member) error { return m.Destroy(ctx) })
		if !errors.Is(err, agent.ErrDestroyed) {
			t.Fatal(err)
		}
		inPool(t, h, (*pool.Pool).Handoff, pool.HandoffRequest{ClaimRef: hold})
		h.Advance(time.Minute)
		if exists, err := h.Host().Exists(t.Context(), id); err != nil || exists {
			t.Errorf("the agent exists: %v, %v", exists, err)
		}
	})
}

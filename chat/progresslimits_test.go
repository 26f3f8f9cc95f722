package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// The types of the chunks that the host adds to a run.
const (
	cutType     = "data-agent-tool-cut"
	restartType = "data-agent-tool-restart"
)

// types returns the types of the chunks of a run, in order.
func (v *runView) types() (all []string) {
	for _, c := range v.bodies {
		all = append(all, c.Type)
	}
	return all
}

// wantCut compares the number of marks of a cut in a run. A mark is the last chunk.
func wantCut(t *testing.T, name string, v *runView, want bool) {
	t.Helper()
	types := v.types()
	if got := slices.Index(types, cutType); want && got != len(types)-1 || !want && got >= 0 {
		t.Errorf("%s has seen the mark of a cut at %d of %d chunks", name, got, len(types))
	}
}

// TestProgressRestIsCut has a client that is away at the end of a reply. It lacks more than a return address may have.
func TestProgressRestIsCut(t *testing.T) {
	for name, c := range map[string]struct {
		sizes []int // of the chunks while the client is away
		want  bool
	}{
		"many chunks":                 {[]int{30 << 10, 30 << 10, 30 << 10}, true},
		"a chunk that is too large":   {[]int{70 << 10}, true},
		"the largest one at the end":  {[]int{30 << 10, 70 << 10}, true},
		"the largest one at the head": {[]int{70 << 10, 10}, true},
		"little":                      {[]int{30 << 10, 20 << 10}, false},
	} {
		t.Run(name, func(t *testing.T) {
			tm := &team{think: func(ctx context.Context, m *member, r *chat.Reply) error {
				if m.Name() != "b" {
					return nil
				}
				if err := r.Send(ctx, chat.ReasoningDelta("r", "begin", nil)); err != nil {
					return err
				}
				for _, n := range c.sizes {
					if err := dohost.Sleep(ctx, 2*time.Second); err != nil {
						return err
					}
					if err := r.Send(ctx, chat.ReasoningDelta("r", strings.Repeat("x", n), nil)); err != nil {
						return err
					}
				}
				return r.Say(ctx, "done")
			}}
			runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
				r := connectMember(t, h, "a", "r")
				if err := askMember(t.Context(), h, "a", "b: hello"); err != nil {
					t.Fatal(err)
				}
				r.waitRun(t, func(v *runView) bool { return v.chunks > 1 })
				r.close()
				h.Advance(time.Minute)
				if err := r.connect(t.Context()); err != nil {
					t.Fatal(err)
				}
				defer r.close()
				v := r.waitRun(t, runEnded)
				if v.status != "finished" || v.summary != "done" {
					t.Errorf("the run is %s, with the summary %q", v.status, v.summary)
				}
				wantCut(t, "r", v, c.want)
				late := connectMember(t, h, "a", "late")
				defer late.close()
				wantCut(t, "late", late.only(t), c.want)
			})
		})
	}
}

// TestProgressRestOfResultsIsCut has an asked agent that waits for another one, whose answer does not fit into the return address.
func TestProgressRestOfResultsIsCut(t *testing.T) {
	tm := &team{think: func(ctx context.Context, m *member, r *chat.Reply) error {
		if m.Name() != "c" {
			return nil
		}
		return r.Say(ctx, strings.Repeat("x", 70<<10))
	}}
	runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
		r := connectMember(t, h, "a", "r")
		defer r.close()
		if err := askMember(t.Context(), h, "a", "b: c: hi"); err != nil {
			t.Fatal(err)
		}
		v := r.waitRun(t, runEnded)
		if v.status != "finished" || !strings.HasPrefix(v.summary, "b heard (xxx") {
			t.Errorf("the run is %s, with the summary %.20q", v.status, v.summary)
		}
		wantCut(t, "r", v, true)
	})
}

// TestProgressOfRestart has an asked agent that discards its reply: the client sees the mark of it between the two replies.
func TestProgressOfRestart(t *testing.T) {
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprint("away ", away), func(t *testing.T) {
			tm := &team{think: sayWords(map[string]int{"b": 8})}
			tm.recover = func(*member, context.Context, *chat.InterruptedReply) (chat.RecoveryAction, error) {
				return chat.RecoveryRestart, nil
			}
			runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
				r := connectMember(t, h, "a", "r")
				if err := askMember(t.Context(), h, "a", "b: hello"); err != nil {
					t.Fatal(err)
				}
				r.waitRun(t, func(v *runView) bool { return strings.Contains(v.text, "w3") })
				if away {
					r.close()
				}
				h.Evict(dohost.ID{Class: "member", Name: "b"}, dohost.EndFence)
				if away {
					h.Advance(time.Minute)
					if err := r.connect(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				defer r.close()
				v := r.waitRun(t, runEnded)
				at := slices.Index(v.types(), restartType)
				if at < 0 {
					t.Fatalf("no mark in %q", v.types())
				}
				text := ""
				for _, c := range v.bodies[at:] {
					text += c.Delta
				}
				if text != wordsText(8) || v.text == text || v.status != "finished" || v.summary != text {
					t.Errorf("after the mark the client has seen %q, in all %q, and %s %q", text, v.text, v.status, v.summary)
				}
			})
		})
	}
}

// TestProgressCountsFrames has an asked agent that streams many tiny chunks: the bytes of the frames are bounded, not those of the chunks.
func TestProgressCountsFrames(t *testing.T) {
	const chunks = 2500
	tm := &team{think: func(ctx context.Context, m *member, r *chat.Reply) error {
		if m.Name() != "b" {
			return nil
		}
		for i := range chunks {
			if err := r.Send(ctx, dataChunk(fmt.Sprintf(`{"type":"data-%d","data":0}`, i%2))); err != nil {
				return err
			}
			if i%1000 == 0 {
				if err := dohost.Sleep(ctx, time.Second); err != nil {
					return err
				}
			}
		}
		return dohost.Sleep(ctx, 10*time.Second)
	}}
	runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
		r := connectMember(t, h, "a", "r")
		defer r.close()
		if err := askMember(t.Context(), h, "a", "b: hello"); err != nil {
			t.Fatal(err)
		}
		v := r.waitRun(t, runEnded)
		if v.frames > 300<<10 || v.frames < 200<<10 {
			t.Errorf("the frames of %d chunks have %d bytes", v.chunks, v.frames)
		}
		wantCut(t, "r", v, true)
	})
}

func dataChunk(text string) (c chat.Chunk) {
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	return c
}

// TestProgressBatchesAreBounded has an asked agent with a word in each of many batches.
func TestProgressBatchesAreBounded(t *testing.T) {
	const words = 270
	tm := &team{options: chat.AgentToolOptions{Timeout: -1}, think: func(ctx context.Context, m *member, r *chat.Reply) error {
		if m.Name() != "b" {
			return nil
		}
		for i := range words {
			if err := dohost.Sleep(ctx, time.Minute); err != nil {
				return err
			}
			if err := r.Say(ctx, fmt.Sprintf("w%d ", i)); err != nil {
				return err
			}
		}
		return nil
	}}
	runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
		r := connectMember(t, h, "a", "r")
		defer r.close()
		if err := askMember(t.Context(), h, "a", "b: hello"); err != nil {
			t.Fatal(err)
		}
		v := r.waitRun(t, runEnded)
		if n := strings.Count(v.text, "w"); n < 250 || n >= 260 || v.summary != wordsText(words) {
			t.Errorf("the client has seen %d words, and the summary %q", n, v.summary)
		}
		wantCut(t, "r", v, true)
		if logs, rows := logsOf(t, h, "a"); logs != 1 || rows != 257 {
			t.Errorf("%d logs with %d rows", logs, rows)
		}
	})
}

// TestProgressEndsInLargeMessage has an answer that does not fit into the message of the caller, and one where not even the error fits.
func TestProgressEndsInLargeMessage(t *testing.T) {
	size := 1000
	for _, stored := range []int{0, 1_799_910, 1_799_980} { // bytes of the message before the answer; the first round finds the size
		tm := &team{think: func(ctx context.Context, m *member, r *chat.Reply) error {
			switch {
			case m.Name() == "b":
				return errors.Join(dohost.Sleep(ctx, 5*time.Second), r.Say(ctx, strings.Repeat("x", 2000)))
			case len(r.Partial().Parts) == 0:
				return r.Send(ctx, chat.ReasoningDelta("r", strings.Repeat("x", size), nil))
			}
			return nil
		}}
		runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
			r := connectMember(t, h, "a", "r")
			defer r.close()
			if err := askMember(t.Context(), h, "a", "b: hello"); err != nil {
				t.Fatal(err)
			}
			r.waitRun(t, func(*runView) bool { return true })
			h.Advance(time.Second)
			now := 0
			inMember(t, h, "a", func(ctx context.Context, m *member) error {
				list, err := chat.Messages(ctx, m, 0)
				for _, m := range list {
					raw, _ := json.Marshal(m)
					now = max(now, len(raw))
				}
				return err
			})
			if stored == 0 {
				size += 1_799_910 - now
				return
			}
			if now != stored {
				t.Fatalf("the message has %d bytes, want %d", now, stored)
			}
			size += 1_799_980 - now
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			for connected := true; connected && !runEnded(r.only(t)); {
				_, connected, _ = r.receive(ctx)
			}
			late := connectMember(t, h, "a", "late")
			defer late.close()
			for _, r := range []*reader{r, late} {
				if v := r.only(t); v.status != "error" || !strings.Contains(v.why, "does not fit") {
					t.Errorf("after a message of %d bytes %s has seen %s %q", now, r.name, v.status, v.why)
				}
			}
		})
	}
}

// TestProgressOfSeveralMessages has two runs, each in a message of its own: a new client gets the answer of each.
func TestProgressOfSeveralMessages(t *testing.T) {
	runTeam(t, &team{}, func(t *testing.T, h *dohosttest.Host) {
		for i := range 2 {
			inMember(t, h, "a", func(ctx context.Context, m *member) error {
				_, err := chat.Ask(ctx, m, []chat.Message{chat.Text(fmt.Sprint("u", i), chat.RoleUser, fmt.Sprint("b: ", i))}, nil)
				return err
			})
			h.Advance(5 * time.Second)
		}
		late := connectMember(t, h, "a", "late")
		defer late.close()
		var got []string
		for _, id := range late.runs.order {
			got = append(got, late.runs.runs[id].summary)
		}
		if fmt.Sprint(got) != "[b says 0 b says 1]" {
			t.Errorf("the summaries are %q", got)
		}
	})
}

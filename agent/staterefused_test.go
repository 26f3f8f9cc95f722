package agent_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/runtime"
)

// TestStateRefusedFailsItsEvent makes changes that Validate refuses, or that are no state: the event of the change fails with the error, be it a
// frame of a client or a call, and the state stays.
func TestStateRefusedFailsItsEvent(t *testing.T) {
	failed := make(chan runtime.Event, 10)
	s := serveWith(t, wireClass(nil), &dohost.Options{Listener: dohost.Listener{EventEnded: func(e runtime.Event) {
		if e.Err != nil {
			failed <- e
		}
	}}})
	wantFailed := func(op, text string) {
		t.Helper()
		select {
		case e := <-failed:
			if e.Op != op || !strings.Contains(e.Err.Error(), text) {
				t.Errorf("the event %s fails: %v; want %s: %s", e.Op, e.Err, op, text)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("no event fails, want %s: %s", op, text)
		}
	}
	lobby := wireAgents.Get(s, "lobby")
	c := s.dial(t, "/lobby")
	c.want(greeting("lobby", `{"title":"untitled","count":0}`)...)
	for state, text := range map[string]string{`{"title":"x","count":-1}`: "a count is not negative", `"text"`: "cannot unmarshal string"} {
		c.send(`{"type":"cf_agent_state","state":` + state + `}`)
		c.want(`{"type":"cf_agent_state_error","error":"State update rejected"}`)
		wantFailed("socket message", text)
	}
	if _, err := dohost.Call(t.Context(), lobby, (*wireAgent).add, -1); err == nil || !strings.Contains(err.Error(), "a count is not negative") {
		t.Error(err)
	}
	wantFailed("add", "a count is not negative")
	err := lobby.Do(t.Context(), func(ctx context.Context, r *wireAgent) error {
		if state, err := r.State(ctx); err != nil || state != (wireState{Title: "untitled"}) || len(r.changes) > 0 {
			t.Errorf("the state is %+v after the changes %q, %v", state, r.changes, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

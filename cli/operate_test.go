package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/web"
)

type operatedAgent struct{ *agent.Agent[struct{}] }

const (
	operatedAgents  dohost.Namespace[operatedAgent] = "clerk"
	failingCallback agent.Callback[string]          = "letter"
	interruptedKind agent.FiberKind[int]            = "watch"
)

// operatedClass is a class with letters that are lost, and fibers that end with their incarnations.
func operatedClass() dohost.Class {
	return agent.Bind(operatedAgents, func(_ context.Context, a *agent.Agent[struct{}]) (*operatedAgent, error) {
		return &operatedAgent{a}, nil
	}, nil,
		agent.OnSchedule(failingCallback, func(*operatedAgent, context.Context, string) error { return errors.New("no such address") }),
		agent.OnFiber(interruptedKind, func(_ *operatedAgent, ctx context.Context, _ *agent.Fiber[int]) error {
			_, _, err := dohost.Recv(ctx, make(chan int))
			return err
		}, nil))
}

// serveAdmin opens a host and serves its admin listener until the test ends.
func serveAdmin(t *testing.T, classes ...dohost.Class) (*dohost.Host, *httptest.Server) {
	t.Helper()
	h, err := dohost.Open(t.TempDir(), nil, classes...)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(web.Admin(h, nil))
	t.Cleanup(func() {
		s.Close()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return h, s
}

// TestOperateCommandsOnFibersAndDeadLetters runs the commands of an operator.
func TestOperateCommandsOnFibersAndDeadLetters(t *testing.T) {
	h, s := serveAdmin(t, operatedClass())
	fibers := map[string]string{}
	err := operatedAgents.Get(h, "a").Do(t.Context(), func(ctx context.Context, c *operatedAgent) error {
		for i := range 3 {
			once := &agent.QueueOptions{ID: fmt.Sprint("letter ", i), Retry: dohost.RetryPolicy{MaxAttempts: 1}}
			if _, err := agent.Enqueue(ctx, c, failingCallback, "x", once); err != nil {
				return err
			}
		}
		s, err := agent.StartFiber(ctx, c, interruptedKind, 1, nil)
		fibers[s.ID] = "FIBER"
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	dashed := regexp.MustCompile(`20\d\d-\d\d-\d\dT[\d:]+Z`)
	run := func(args ...string) string {
		var out, stderr strings.Builder
		for id, name := range fibers {
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], name, id)
			}
		}
		status := App{}.run(t.Context(), append(args, "--admin", strings.TrimPrefix(s.URL, "http://")), stdio{strings.NewReader(""), &out, &stderr})
		text := dashed.ReplaceAllString(out.String(), "TIME") + stderr.String()
		for id, name := range fibers {
			text = strings.ReplaceAll(text, id, name)
		}
		return fmt.Sprintf("%s%d", text, status)
	}
	for strings.Count(run("show", "clerk/a"), "dead-letter") != 3 { // the letters go out one by one
	}
	expect := func(want string, args ...string) {
		t.Helper()
		if got := run(args...); !strings.Contains(got, want) {
			t.Errorf("%q\n%s\nwant\n%s", args, got, want)
		}
	}
	const dead = `letter 0, failed, "letter", since TIME, "no such address"` + "\n"
	expect(`FIBER, running, "watch", started, since TIME, checkpoint of 1 bytes`, "show", "clerk/a")
	expect(dead, "show", "clerk/a")
	expect("more         use a larger --limit to list the rest\n", "show", "clerk/a", "--limit", "2")
	expect("limit \"0\": want 1 to 10000", "show", "clerk/a", "--limit", "0")
	expect("cancelled fiber FIBER of clerk/a\n0", "cancel", "clerk/a", "fiber", "FIBER")
	expect("dohost: clerk/a has no fiber FIBER to cancel\n1", "cancel", "clerk/a", "fiber", "FIBER")
	expect("FIBER, cancelled, ", "show", "clerk/a")
	expect("deleted 1 item of kind fiber of clerk/a\n0", "delete", "clerk/a", "fiber", "--all")
	expect("deleted dead-letter letter 1 of clerk/a\n0", "delete", "clerk/a", "dead-letter", "letter 1")
	expect("retried 2 items of kind dead-letter of clerk/a\n0", "retry", "clerk/a", "dead-letter", "--all")
	for strings.Count(run("show", "clerk/a"), "dead-letter") != 2 {
	}
	err = operatedAgents.Get(h, "a").Do(t.Context(), func(ctx context.Context, c *operatedAgent) error {
		slow := &agent.QueueOptions{ID: "letter 0", Retry: dohost.RetryPolicy{MaxAttempts: 2, BaseDelay: 1000 * time.Hour, MaxDelay: 1000 * time.Hour}}
		_, err := agent.Enqueue(ctx, c, failingCallback, "x", slow)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	expect("retried 1 item of kind dead-letter of clerk/a\ndohost: dead-letter letter 0: ", "retry", "clerk/a", "dead-letter", "--all")
	expect("cancelled item letter 0 of clerk/a\n0", "cancel", "clerk/a", "item", "letter 0")
	h.Evict(operatedAgents.Get(h, "a").ID(), dohost.EndFence) // with the run that waits
	expect("want the id of the fiber, as show prints it, or --all\n1", "delete", "clerk/a", "fiber")
	expect("--all and an id: want one of them\n1", "delete", "clerk/a", "fiber", "x", "--all")
	expect(`items of kind "egg" do not allow the action delete`, "delete", "clerk/a", "egg", "x")
	expect(`no such class: "egg"`, "delete", "egg/a", "fiber", "x")
	if got := run("delete", "egg/a", "fiber", "--all"); !strings.HasPrefix(got, "dohost: ") {
		t.Errorf("all of what is not there: %s", got)
	}
}

package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/pointtest"
	"github.com/dohost/dohost/ledger"
)

// countingModel is a stampingModel that counts the requests for each answer, outside of the agents.
type countingModel struct {
	stampingModel

	mu      sync.Mutex
	answers map[string]int
}

func (m *countingModel) reset() {
	m.took()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers = map[string]int{}
}

func (m *countingModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	m.mu.Lock()
	m.answers[fmt.Sprint(p.Messages[len(p.Messages)-1].ID, " ", len(p.Partial.Parts) > 0)]++
	m.mu.Unlock()
	return m.stampingModel.Stream(ctx, p)
}

// TestBudgetAtEveryPoint has two cycles of two answers, each with an effect outside in between, and a budget of one answer. So it is exhausted in
// the middle of each cycle, and between the two. An operator refuses the first question, retries the parked messages, and approves all others, each of them
// twice. Wherever the incarnation or the process ends, each message has one response and one effect, no recorded answer is asked for again, and
// each question is decided once, with one grant for each approval. The messages are answered in their order, unless the disk was full.
func TestBudgetAtEveryPoint(t *testing.T) {
	service := &dohosttest.FakeService{Idempotent: true}
	m := &countingModel{}
	m.reset()
	a := thrifty("clerk", m, chat.Budget{Agent: chat.Limit{Cost: 1}})
	a.Tools = []chat.Tool{{ToolSpec: chat.ToolSpec{Name: "stamp"}, Policy: ledger.PolicyIdempotent, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
		c, _ := chat.CallFrom(ctx)
		return "stamped", dohost.Await(ctx, func(ctx context.Context) error { return service.Call(ctx, c.Key, "stamp") })
	}}}
	var full atomic.Bool // the disk was full in this run
	s := dohosttest.Scenario{
		Classes:  []dohost.Class{deskClass(inbox.On(inbox.ForMessages[desk](&messages, a)))},
		Services: []*dohosttest.FakeService{service},
		Options: dohost.Options{Listener: dohost.Listener{Space: func(d dohost.DiskSpace) {
			if d.Full {
				full.Store(true)
			}
		}}},
		Reset: func() {
			m.reset()
			full.Store(false)
		},
		Places:   pointtest.Places(),
		FullDisk: true,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			if err := sendOnce(ctx, h, fromAda("1")[0], asking("2")); err != nil {
				return err
			}
			for {
				left, err := decideNext(ctx, h)
				if err != nil || !left {
					return err
				}
				if err := dohost.Sleep(ctx, 500*time.Millisecond); err != nil {
					return err
				}
			}
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			err := checkBudgets(ctx, h, full.Load())
			if n := service.Total(); n != 2 {
				err = errors.Join(err, fmt.Errorf("%d effects of two cycles", n))
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			again := -len(m.answers)
			for _, n := range m.answers {
				again += n
			}
			if len(m.answers) != 4 || again > 2 { // at most two ends
				err = errors.Join(err, fmt.Errorf("the model was asked for the answers %v", m.answers))
			}
			return err
		},
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 20, 40))
}

// idempotently calls fn with the turn of the desk, again after an ending.
func idempotently(ctx context.Context, h *dohosttest.Host, fn func(ctx context.Context, d *desk) error) error {
	return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
		return desks.Get(h, "a").Do(ctx, fn)
	})
}

// decideNext decides the open question, if there is one, and retries parked messages. left reports that a message is in the inbox.
func decideNext(ctx context.Context, h *dohosttest.Host) (left bool, err error) {
	var open []inbox.BudgetQuestion
	denied := false
	err = idempotently(ctx, h, func(ctx context.Context, d *desk) (err error) {
		denied = false
		for e, logErr := range inbox.BudgetEvents(ctx, d) {
			denied, err = denied || e.Action == inbox.BudgetDenied, errors.Join(err, logErr)
		}
		n, countErr := messages.Count(ctx, d.Storage(), &dohost.Query[inbox.Message]{Index: "pending", Limit: 1})
		parked, listErr := d.Rows().List(ctx, &agent.RowsQuery{State: agent.RowsParked})
		for _, rows := range parked {
			_, retryErr := d.Rows().Retry(ctx, rows.ID)
			err = errors.Join(err, retryErr)
		}
		left = n > 0
		open, n = nil, 0
		if err = errors.Join(err, countErr, listErr); err == nil {
			open, err = inbox.BudgetQuestions(ctx, d)
		}
		return err
	})
	if err != nil || len(open) == 0 {
		return left, err
	}
	if len(open) > 1 {
		return left, fmt.Errorf("the questions are %+v", open)
	}
	decision := &inbox.BudgetDecision{Question: open[0].ID, Approve: denied}
	for i := range 2 {
		err := idempotently(ctx, h, func(ctx context.Context, d *desk) error { return inbox.DecideBudget(ctx, d, decision) })
		if gone := errors.Is(err, inbox.ErrNoQuestion); err != nil && !gone || i == 1 && !gone { // a lost answer: the first is gone, too
			return left, fmt.Errorf("decision %d: %w", i+1, err)
		}
	}
	return left, nil
}

// checkBudgets compares the responses, the grants and the audit log, and expects that nothing is left to do. full reports that the disk was full
// during the run.
func checkBudgets(ctx context.Context, h *dohosttest.Host, full bool) error {
	return desks.Get(h, "a").Do(ctx, func(ctx context.Context, d *desk) error {
		decided, approved, denied := map[string]int{}, 0, 0
		for e, err := range inbox.BudgetEvents(ctx, d) {
			switch e.Action {
			case inbox.BudgetApproved:
				approved++
			case inbox.BudgetDenied:
				denied++
			}
			if e.Action != inbox.BudgetRequested {
				decided[e.Question]++
			}
			if err != nil || decided[e.Question] > 1 || e.Action == inbox.BudgetWithdrawn {
				return fmt.Errorf("the event %+v: %w", e, err)
			}
		}
		grants, err := chat.BudgetGrants(ctx, d, chat.BudgetOfAgent, "")
		asked, waits, rowsErr := inbox.BudgetRows(ctx, d.Storage())
		tasks, listErr := d.Rows().List(ctx, nil)
		rows, err2 := messages.List(ctx, d.Storage(), &dohost.Query[inbox.Message]{Index: "conversation", Prefix: dohost.KeyOf("clerk")})
		if err = errors.Join(err, rowsErr, listErr, err2); err != nil {
			return err
		}
		if grants != approved || grants < 3 || denied != 1 || asked+waits > 0 || len(tasks) > 0 {
			return fmt.Errorf("%d grants, %d approvals, %d refusals, %d questions and %d waits left, tasks %+v", grants, approved, denied, asked, waits, tasks)
		}
		var said []string
		for _, row := range rows {
			said = append(said, row.Value.From+":"+row.Value.Content)
		}
		// After a full disk the cycle of the first message may be repeated after the second message, of another group, is answered.
		got := strings.Join(said, " ")
		if got != "ada:1 clerk:1 planner:2 clerk:2" && (!full || got != "planner:2 clerk:2 ada:1 clerk:1") {
			return fmt.Errorf("the conversation is %q", got)
		}
		return nil
	})
}

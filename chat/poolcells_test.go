package chat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/internal/celltest"
	"github.com/dohost/dohost/ledger"
	"github.com/dohost/dohost/pool"
)

// cellOfPool has all pools in another cell than the agents.
func cellOfPool(id dohost.ID) int {
	if id.Class == string(pool.Pools) {
		return 1
	}
	return 0
}

// inPoolAt calls a method of the pool "tools", until it succeeds.
func inPoolAt[In, Out any](ctx context.Context, c *celltest.Cells, m func(*pool.Pool, context.Context, In) (Out, error), in In) (out Out, err error) {
	err = c.Retry(ctx, func(ctx context.Context) (err error) {
		out, err = dohost.Call(ctx, pool.Pools.Get(c.At(1), "tools"), m, in)
		return err
	})
	return out, err
}

// bookAt does the next task, as the worker "w".
func bookAt(ctx context.Context, c *celltest.Cells, result string) error {
	var task *pool.Task
	err := c.Until(ctx, func(ctx context.Context) (bool, error) {
		if _, err := inPoolAt(ctx, c, (*pool.Pool).Join, pool.JoinRequest{Role: "book", Conn: "w"}); err != nil {
			return false, err
		}
		claimed, err := inPoolAt(ctx, c, (*pool.Pool).Claim, pool.ClaimRequest{Role: "book", Conn: "w"})
		task = claimed.Task
		return task != nil, err
	})
	if err != nil {
		return err
	}
	hold := pool.ClaimRef{Task: task.ID, Conn: "w", Fence: task.Fence}
	if _, err := inPoolAt(ctx, c, (*pool.Pool).Start, hold); err != nil {
		return err
	}
	_, err = inPoolAt(ctx, c, (*pool.Pool).Handoff, pool.HandoffRequest{ClaimRef: hold, Result: json.RawMessage(result)})
	return err
}

// tasksAt returns the tasks of the pool, each as its status.
func tasksAt(ctx context.Context, c *celltest.Cells) (all []pool.Status, err error) {
	list, err := inPoolAt(ctx, c, (*pool.Pool).Tasks, pool.ListQuery{Role: "book"})
	for _, task := range list.Tasks {
		all = append(all, task.Status)
	}
	return all, err
}

// TestPoolToolAcrossCellsAtEveryCall has a pool in another cell than the agent. Each call between the cells is interrupted.
func TestPoolToolAcrossCellsAtEveryCall(t *testing.T) {
	tm := bookTeam(chat.PoolToolOptions[booking]{Timeout: 3 * time.Hour})
	celltest.EveryCall(t, &celltest.Scenario{
		Classes: func() []dohost.Class { return []dohost.Class{tm.class(), pool.Class(nil)} }, Cell: cellOfPool,
		Run: func(ctx context.Context, c *celltest.Cells) error {
			if err := askAt(ctx, c, "tool book: seat"); err != nil {
				return err
			}
			if err := bookAt(ctx, c, `{"seat":1}`); err != nil {
				return err
			}
			if err := wantAt(ctx, c, "a", "user: tool book: seat", `assistant: a heard ({"seat":1})`); err != nil {
				return err
			}
			c.Sleep(5 * time.Minute) // a late call
			all, err := tasksAt(ctx, c)
			if err == nil && fmt.Sprint(all) != "[done]" {
				err = fmt.Errorf("the pool has the tasks %v", all)
			}
			return err
		},
	})
}

// TestTaskAfterItsCancellation stops a reply whose task is on its way to a pool of another cell. The post arrives a minute later.
func TestTaskAfterItsCancellation(t *testing.T) {
	slow := sleeper("slow", 24*time.Hour, false)
	slow.Policy = ledger.PolicyIdempotent
	tm := bookTeam(chat.PoolToolOptions[booking]{Timeout: 3 * time.Hour}, slow)
	celltest.Once(t, &celltest.Scenario{
		Classes: func() []dohost.Class { return []dohost.Class{tm.class(), pool.Class(nil)} }, Cell: cellOfPool,
		Run: func(ctx context.Context, c *celltest.Cells) error {
			c.Fault = func(call *dohost.RemoteCall) celltest.Ending {
				if call.Method == "dohost.chat.task" && !bytes.Contains(call.Argument, []byte(`"cancel":true`)) {
					return celltest.LateCall
				}
				return celltest.NoEnding
			}
			if err := askAt(ctx, c, "tool book: seat & tool slow: x"); err != nil {
				return err
			}
			c.Sleep(10 * time.Second)
			err := memberAt(c, "a").Do(ctx, func(ctx context.Context, m *member) error {
				_, err := chat.Cancel(ctx, m, "one")
				return err
			})
			if err != nil {
				return err
			}
			c.Sleep(5 * time.Minute)
			all, err := tasksAt(ctx, c)
			if err == nil && fmt.Sprint(all) != "[failed]" {
				err = fmt.Errorf("the pool has the tasks %v", all)
			}
			return err
		},
	})
}

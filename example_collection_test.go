package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/dohost/dohost"
)

type Task struct {
	ID    string
	State string
	Rank  int
}

var tasks = dohost.Collection[Task]{
	Name: "tasks",
	Key:  func(t Task) string { return t.ID },
	Indexes: []dohost.Index[Task]{
		{Name: "state", Of: func(t Task) dohost.Key { return dohost.KeyOf(t.State) + dohost.KeyOf(t.Rank) }},
	},
	Feed: &board,
}

var board = dohost.Feed{Name: "board", Keep: 1000}

// Board is an object with a collection.
type Board struct{ store *dohost.Storage }

const Boards dohost.Namespace[Board] = "board"

func boardClass() dohost.Class {
	return dohost.Bind(Boards, func(_ context.Context, s *dohost.State) (*Board, error) { return &Board{s.Storage()}, nil }, nil)
}

// Rows are found by key or index, and a writer can insist on the version it saw.
func ExampleCollection() {
	withHost(func(ctx context.Context, h *dohost.Host) {
		err := Boards.Get(h, "today").Do(ctx, func(ctx context.Context, b *Board) error {
			for _, t := range []Task{{"wash", "open", 2}, {"cook", "open", 10}, {"eat", "done", 1}} {
				if err := tasks.Insert(ctx, b.store, t); err != nil {
					return err
				}
			}
			open := &dohost.Query[Task]{Index: "state", Prefix: dohost.KeyOf("open"), Reverse: true}
			for row, err := range tasks.All(ctx, b.store, open) {
				if err != nil {
					return err
				}
				fmt.Println(row.Key, row.Value.Rank, row.Version)
			}
			done := func(t *Task) error { t.State = "done"; return nil }
			if _, err := tasks.Update(ctx, b.store, "cook", done); err != nil {
				return err
			}
			_, err := tasks.UpdateIf(ctx, b.store, "cook", 1, done)
			fmt.Println(errors.Is(err, dohost.ErrConflict), err)

			changes, err := board.Read(ctx, b.store, dohost.Position{}, 0)
			for _, c := range changes {
				fmt.Println(c.Position.Offset, c.Op, c.Key)
			}
			return err
		})
		if err != nil {
			log.Fatal(err)
		}
	}, boardClass())
	// Output:
	// cook 10 1
	// wash 2 1
	// true dohost: row has changed: tasks "cook" has version 2, expected 1
	// 1 insert wash
	// 2 insert cook
	// 3 insert eat
	// 4 update cook
}

// Page returns the keys of at most three open tasks after a cursor, by rank, and the cursor of the last one.
func (b *Board) Page(ctx context.Context, after dohost.Cursor) (page Page, err error) {
	rows, err := tasks.List(ctx, b.store, &dohost.Query[Task]{
		Index: "state", Prefix: dohost.KeyOf("open"), After: after, Limit: 3,
	})
	for _, row := range rows {
		page.Tasks = append(page.Tasks, row.Key)
		page.Next = row.Cursor
	}
	return page, err
}

type Page struct {
	Tasks []string
	Next  dohost.Cursor
}

// A query continues page by page, over rows that may change in between.
func ExampleQuery() {
	withHost(func(ctx context.Context, h *dohost.Host) {
		today := Boards.Get(h, "today")
		insert := func(ts ...Task) error {
			return today.Do(ctx, func(ctx context.Context, b *Board) error {
				for _, t := range ts {
					if err := tasks.Insert(ctx, b.store, t); err != nil {
						return err
					}
				}
				return nil
			})
		}
		fmt.Println(insert(Task{"cook", "open", 3}, Task{"dry", "open", 5}, Task{"eat", "open", 4}, Task{"shop", "open", 2}))
		first, err := dohost.Call(ctx, today, (*Board).Page, "")
		fmt.Println(first.Tasks, err)
		fmt.Println(insert(Task{"list", "open", 1}, Task{"rest", "open", 6}))
		second, err := dohost.Call(ctx, today, (*Board).Page, first.Next)
		fmt.Println(second.Tasks, err)
		none, err := dohost.Call(ctx, today, (*Board).Page, second.Next)
		fmt.Println(none.Tasks, err)
	}, boardClass())
	// Output:
	// <nil>
	// [shop cook eat] <nil>
	// <nil>
	// [dry rest] <nil>
	// [] <nil>
}

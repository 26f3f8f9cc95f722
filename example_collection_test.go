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

// Rows are found by key or index, and a writer can insist on the version it saw.
func ExampleCollection() {
	newBoard := func(_ context.Context, s *dohost.State) (*Board, error) { return &Board{s.Storage()}, nil }
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
	}, dohost.Bind(Boards, newBoard))
	// Output:
	// cook 10 1
	// wash 2 1
	// true objectstore: row has changed: tasks "cook" has version 2, expected 1
	// 1 insert wash
	// 2 insert cook
	// 3 insert eat
	// 4 update cook
}

package dohost_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/dohost/dohost"
)

// errand is a row of a list that pages show.
type errand struct {
	ID, State string
}

var errands = dohost.Collection[errand]{
	Name: "errands",
	Key:  func(e errand) string { return e.ID },
	Indexes: []dohost.Index[errand]{
		{Name: "state", Of: func(e errand) dohost.Key { return dohost.KeyOf(e.State) }},
	},
	Feed: &dohost.Feed{Name: "errands", Keep: 1000, Values: true, Before: true},
}

// A watch gets the open errands, and then each change of them. It ends at its third DeltaReady.
func ExampleCollection_Watch() {
	withHost(func(ctx context.Context, h *dohost.Host) {
		today := Boards.Get(h, "today")
		put := func(es ...errand) func(context.Context, *Board) error {
			return func(ctx context.Context, b *Board) error {
				for _, e := range es {
					if err := errands.Put(ctx, b.store, e); err != nil {
						return err
					}
				}
				return nil
			}
		}
		if err := today.Do(ctx, put(errand{"cook", "open"}, errand{"eat", "done"})); err != nil {
			log.Fatal(err)
		}
		changes := [][]errand{{{"eat", "open"}, {"cook", "done"}}, {{"shop", "done"}}}
		err := today.Do(ctx, func(ctx context.Context, b *Board) error {
			open := &dohost.Query[errand]{Index: "state", Equal: dohost.KeyOf("open")}
			for d, err := range errands.Watch(ctx, b.store, open, nil) {
				if err != nil {
					return err
				}
				fmt.Println(strings.TrimSpace(d.Kind.String() + " " + d.Row.Key))
				if d.Kind != dohost.DeltaReady {
					continue
				}
				if len(changes) == 0 {
					return nil
				}
				if err := put(changes[0]...)(ctx, b); err != nil {
					return err
				}
				changes = changes[1:]
			}
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}, boardClass())
	// Output:
	// reset
	// enter cook
	// ready
	// enter eat
	// exit cook
	// ready
	// ready
}

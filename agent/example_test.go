package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// Librarians is the namespace of Librarian objects.
const Librarians dohost.Namespace[Librarian] = "librarian"

// Librarian is an agent that reads books, page by page.
type Librarian struct {
	*agent.Agent[Shelf]
	read func(ctx context.Context, title string, page int) (words int, err error)
}

// Shelf is its state, which all its clients see and may change.
type Shelf struct {
	Words map[string]int `json:"words"` // of the books that were read
}

// bookmark is the checkpoint of a fiber: its position in a book.
type bookmark struct {
	Title       string
	Page, Words int
}

const reading agent.FiberKind[bookmark] = "reading"

func librarian(read func(context.Context, string, int) (int, error)) dohost.Class {
	return agent.Bind(Librarians,
		func(_ context.Context, a *agent.Agent[Shelf]) (*Librarian, error) { return &Librarian{a, read}, nil },
		&agent.Handlers[Librarian, Shelf]{
			Initial: &Shelf{Words: map[string]int{}},
			Validate: func(_ *Librarian, _ context.Context, s Shelf, _ *agent.Conn) error {
				if s.Words == nil || len(s.Words) > 100 {
					return errors.New("want the words of at most 100 books")
				}
				return nil
			},
		},
		agent.Callable("start", (*Librarian).Start),
		agent.OnFiber(reading, (*Librarian).readBook, &agent.KindOptions{KeepCompleted: -1}))
}

// Start starts a fiber that reads a book, once. It does not wait for the fiber to end.
func (l *Librarian) Start(ctx context.Context, title string) (agent.Started, error) {
	return agent.StartFiber(ctx, l, reading, bookmark{Title: title}, &agent.FiberOptions{Key: title})
}

// readBook is the method of the fiber. After an end of the incarnation it reads at most one page again.
func (l *Librarian) readBook(ctx context.Context, f *agent.Fiber[bookmark]) error {
	for b := f.Checkpoint(); ; {
		n, err := dohost.AwaitValue(ctx, func(ctx context.Context) (int, error) { return l.read(ctx, b.Title, b.Page) })
		if err != nil {
			return err
		}
		if n == 0 {
			return l.UpdateState(ctx, func(s *Shelf) error { s.Words[b.Title] = b.Words; return nil })
		}
		b = bookmark{b.Title, b.Page + 1, b.Words + n}
		if err := f.SaveCheckpoint(ctx, b); err != nil {
			return err
		}
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "dohost")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	pages := []int{120, 80, 200}
	h, err := dohost.Open(dir, nil, librarian(func(_ context.Context, _ string, page int) (int, error) {
		if page == len(pages) {
			return 0, nil
		}
		return pages[page], nil
	}))
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	err = Librarians.Get(h, "main").Do(context.Background(), func(ctx context.Context, l *Librarian) error {
		started, err := l.Start(ctx, "Walden")
		if err != nil {
			return err
		}
		again, err := l.Start(ctx, "Walden")
		if err != nil {
			return err
		}
		fmt.Println("accepted:", started.Accepted, again.Accepted)
		info, _, err := l.Fibers().Wait(ctx, started.ID)
		if err != nil {
			return err
		}
		shelf, err := l.State(ctx)
		fmt.Println(info.Status, shelf.Words)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// accepted: true false
	// completed map[Walden:400]
}

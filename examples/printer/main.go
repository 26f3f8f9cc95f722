// Command printer has an assistant in one process, and the executor of its tool in another one. The executor reads the jobs of the
// assistant as server-sent events, and reports each result over HTTP. Either process may be killed: each job is printed once, its call
// is completed once, and the answer continues.
//
//	printer serve                                       the assistant
//	printer print http://127.0.0.1:8787 front book.txt  the executor of the jobs of the desk "front"
package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cli"
)

func main() {
	cli.App{
		Classes:  []dohost.Class{Class()},
		Commands: []cli.Command{{Name: "print", Help: "Print the jobs of a desk, until the process ends.", Value: &printCmd{}}},
	}.Main()
}

// printCmd runs the executor.
type printCmd struct {
	URL   string        `arg:"" help:"Address of the server."`
	Desk  string        `arg:"" help:"Name of the desk."`
	Book  string        `arg:"" help:"File that has a line for each printed job."`
	Delay time.Duration `help:"Wait between a print and its report."`
}

// Run is the command.
func (c *printCmd) Run(ctx context.Context, out io.Writer) error {
	book, err := openBook(c.Book)
	if err != nil {
		return err
	}
	defer book.close()
	e := &executor{desk: c.URL + "/agents/desk/" + c.Desk, calls: c.URL + "/objects/desk/" + c.Desk, book: book, delay: c.Delay}
	for ctx.Err() == nil {
		if err := e.follow(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintln(out, err) // it connects again, and gets all jobs that are not printed yet
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// Command printer has an assistant in one process, and the executor of its tool in another one. The executor reads the jobs of the
// assistant as server-sent events, and reports each result over HTTP. Either process may be killed: each job is printed once, its call
// is completed once, and the answer continues. From the root of the module, in three terminals:
//
//	go run ./examples/printer serve                                       # the assistant
//	go run ./examples/printer print http://127.0.0.1:8787 front book.txt  # the executor of the jobs of the desk "front"
//	curl -d '{"id": "1", "text": "a card"}' http://127.0.0.1:8787/objects/desk/front/ask
//	curl http://127.0.0.1:8787/agents/desk/front/get-messages             # the question, the call and the answer
//
// The book is the memory of the executor: keep it, and start one executor for a desk. An executor with another book prints each
// open job again. Another one with the same book ends with an error.
//
// Each client of a desk may call its methods, and so report a job that is not printed. If only some clients may, the class
// needs an Authorize function: see docs/security.md.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cli"
	"github.com/dohost/dohost/web"
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

	TokenFile string `env:"DOHOST_TOKEN_FILE" placeholder:"FILE" help:"Present the first token of this file."`
}

// Run is the command.
func (c *printCmd) Run(ctx context.Context, out io.Writer) error {
	book, err := openBook(c.Book)
	if err != nil {
		return err
	}
	defer book.close()
	server, desk := strings.TrimSuffix(c.URL, "/"), url.PathEscape(c.Desk)
	e := &executor{
		client: http.DefaultClient, desk: server + "/agents/desk/" + desk, calls: server + "/objects/desk/" + desk,
		book: book, delay: c.Delay, out: out,
	}
	if c.TokenFile != "" {
		tokens, err := web.ReadTokens(c.TokenFile)
		if err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		e.token = tokens[0]
	}
	return e.run(ctx)
}

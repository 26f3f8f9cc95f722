// Command dohost runs Durable Objects: the built-in classes, a demonstration under
// chaos, and the tools of an operator.
package main

import (
	"context"
	"os"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cli"
	"github.com/dohost/dohost/examples/counter"
	"github.com/dohost/dohost/internal/recovery"
)

func main() {
	if status, is := recovery.Child(context.Background()); is {
		os.Exit(status)
	}
	cli.App{
		Classes: []dohost.Class{counter.Class()},
		Commands: []cli.Command{{
			Name: "demo", Help: "Run a job under chaos and SIGKILL, and check that nothing was lost.", Value: &demoCmd{},
		}, simCommand, benchCommand},
	}.Main()
}

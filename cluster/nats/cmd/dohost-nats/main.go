// Command dohost-nats is dohost with a shared log on NATS JetStream: dohost serve has the flags --cluster and --cell, and --nats-server
// for a NATS server in the process. It has the built-in classes.
package main

import (
	"context"
	"os"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cli"
	"github.com/dohost/dohost/cluster/nats/internal/embedded"
	"github.com/dohost/dohost/docs"
	"github.com/dohost/dohost/examples/assistant"
	"github.com/dohost/dohost/examples/counter"
	"github.com/dohost/dohost/examples/room"
	"github.com/dohost/dohost/pool"
)

// pace is the time that an assistant takes for a word, slow enough to watch.
const pace = 40 * time.Millisecond

var _ cli.Cells = (*embedded.Flags)(nil)

func main() {
	os.Exit(run(counter.Class(), room.Class(), assistant.Class(docs.Files, pace), pool.Class(nil)))
}

// run is the program over some classes. A server in the process stops after the command, which has given the cells to other nodes by then.
func run(classes ...dohost.Class) (status int) {
	flags := &embedded.Flags{}
	defer flags.Stop()
	return cli.App{Classes: classes, SharedLog: flags}.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

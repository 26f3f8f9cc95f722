// Command dohost-nats is dohost with a shared log on NATS JetStream: dohost serve has the flags --cluster and --cell. It has the
// built-in classes; a program of your own has the same main function with other classes.
package main

import (
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cli"
	"github.com/dohost/dohost/cluster/nats/natslog"
	"github.com/dohost/dohost/docs"
	"github.com/dohost/dohost/examples/assistant"
	"github.com/dohost/dohost/examples/counter"
	"github.com/dohost/dohost/examples/room"
	"github.com/dohost/dohost/pool"
)

// pace is the time that an assistant takes for a word, slow enough to watch.
const pace = 40 * time.Millisecond

var _ cli.Cells = (*natslog.Flags)(nil)

func main() {
	cli.App{
		Classes:   []dohost.Class{counter.Class(), room.Class(), assistant.Class(docs.Files, pace), pool.Class(nil)},
		SharedLog: &natslog.Flags{},
	}.Main()
}

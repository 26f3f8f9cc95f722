// Command dohost runs Durable Objects: the built-in classes, a demonstration under
// chaos, and the tools of an operator.
package main

import (
	"context"
	"os"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cli"
	"github.com/dohost/dohost/docs"
	"github.com/dohost/dohost/examples/assistant"
	"github.com/dohost/dohost/examples/counter"
	"github.com/dohost/dohost/examples/research"
	"github.com/dohost/dohost/examples/room"
	"github.com/dohost/dohost/internal/recovery"
	"github.com/dohost/dohost/pool"
)

func main() {
	if status, is := recovery.Child(context.Background()); is {
		os.Exit(status)
	}
	cli.App{
		Classes: builtIn(),
		// Only catalogs use mergers.
		Serve: []string{
			string(counter.Counters), string(room.Rooms), string(assistant.Assistants), string(research.Catalogs), string(research.Researchers),
			string(pool.Pools),
		},
		Commands: []cli.Command{{
			Name: "demo", Help: "Run a job under chaos and SIGKILL, and check that nothing was lost.", Value: &demoCmd{},
		}, simCommand, benchCommand},
		Questions: map[string][]string{string(assistant.Assistants): {
			"What happens to an object when it is evicted?",
			"How does a reply continue after a crash?",
			"When does an alarm fire?",
			"What keeps an object in memory?",
		}},
	}.Main()
}

// pace is the time that an assistant takes for a word, slow enough to watch.
const pace = 40 * time.Millisecond

// builtIn returns the classes that serve runs by default: a counter, chat rooms, assistants that answer from
// the project's documents, agents that read these documents, and pools of workers.
func builtIn() []dohost.Class {
	folder := &research.Config{Files: docs.Files, Piece: 256, Mergers: 4, Together: 4, KeepAlive: time.Second}
	return append([]dohost.Class{counter.Class(), room.Class(), assistant.Class(docs.Files, pace), pool.Class(nil)}, folder.Classes()...)
}

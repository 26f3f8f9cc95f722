package cli

import (
	"cmp"
	"fmt"

	"github.com/dohost/dohost"
)

// limitFlags bound the resources of a server that clients can use.
type limitFlags struct {
	MaxFrame   int `env:"DOHOST_MAX_FRAME" default:"4" placeholder:"MIB" help:"Maximum size of a WebSocket frame from a client (${default} MiB)."`
	MaxBody    int `env:"DOHOST_MAX_BODY" default:"16" placeholder:"MIB" help:"Maximum size of a request body (${default} MiB)."`
	ReadBudget int `env:"DOHOST_READ_BUDGET" default:"256" placeholder:"MIB" help:"Maximum size of all frames and bodies that the host is reading or handling (${default} MiB). The clients of one object get at most three eighths of it, and the rest of one frame or body."`
	MaxConns   int `env:"DOHOST_MAX_CONNS" placeholder:"N" help:"Maximum number of connections to --listen; 0 for the number of files that the process may open, less 256, and at most 100000; with several cells less."`
	MaxPerAddr int `name:"max-conns-per-addr" env:"DOHOST_MAX_CONNS_PER_ADDR" placeholder:"N" help:"Maximum number of connections to --listen from one remote address other than loopback; 0 for half of --max-conns."`
	SendBudget int `env:"DOHOST_SEND_BUDGET" default:"256" placeholder:"MIB" help:"Maximum size of all frames and HTTP responses waiting for clients (${default} MiB). Above it the host disconnects the clients with the most waiting bytes."`
}

// conns returns the bounds of the connections of clients of a process with one host, or of a node with this number of cells in its cluster.
func (f *limitFlags) conns(cells int) *connLimit {
	total := cmp.Or(f.MaxConns, defaultConns(maxFiles(), cells))
	return newConnLimit(total, cmp.Or(f.MaxPerAddr, max(total/2, 1)))
}

const mib = 1 << 20

// The values of the flags that are zero, in MiB.
const (
	defaultFrame = dohost.DefaultMaxFrame / mib
	defaultBody  = 16 // of web.Options
	defaultReads = dohost.DefaultReadBudget / mib
)

// The parts of the read budget: see dohost.Options.ReadBudget.
const (
	countedBody = 16 // the largest number of MiB that count of a body
	leastFrames = 4  // the smallest budget, in frames or bodies
)

// maxMiB is the largest value of a flag in MiB.
const maxMiB = 1 << 20

// check returns an error that names a flag with an invalid value.
func (f *limitFlags) check() error {
	for flag, v := range map[string]int{
		"--max-frame": f.MaxFrame, "--max-body": f.MaxBody, "--read-budget": f.ReadBudget, "--send-budget": f.SendBudget,
	} {
		if v < 0 || v > maxMiB {
			return fmt.Errorf("%s %d: want 1 to %d MiB, or 0 for the default", flag, v, maxMiB)
		}
	}
	if f.MaxConns < 0 || f.MaxPerAddr < 0 {
		return fmt.Errorf("--max-conns %d, --max-conns-per-addr %d: want 0 for the default, or more", f.MaxConns, f.MaxPerAddr)
	}
	frame, body, budget := cmp.Or(f.MaxFrame, defaultFrame), cmp.Or(f.MaxBody, defaultBody), cmp.Or(f.ReadBudget, defaultReads)
	if least := leastFrames * max(frame, min(body, countedBody)); least > budget {
		return fmt.Errorf("--read-budget %d: want at least %d, %d times the larger of --max-frame %d and --max-body %d, which counts up to %d MiB",
			budget, least, leastFrames, frame, body, countedBody)
	}
	return nil
}

// set sets the host's share of the limits. Zero means the default there too.
func (f *limitFlags) set(o *dohost.Options) {
	o.MaxFrame, o.ReadBudget, o.SendBudget = f.MaxFrame*mib, int64(f.ReadBudget)*mib, int64(f.SendBudget)*mib
}

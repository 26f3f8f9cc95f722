package cli

import (
	"fmt"

	"github.com/dohost/dohost"
)

// limitFlags bound what clients can make a server hold.
type limitFlags struct {
	MaxFrame   int `env:"DOHOST_MAX_FRAME" default:"4" placeholder:"MIB" help:"Largest WebSocket frame of a client (${default})."`
	MaxBody    int `env:"DOHOST_MAX_BODY" default:"16" placeholder:"MIB" help:"Largest body of a request (${default})."`
	ReadBudget int `env:"DOHOST_READ_BUDGET" default:"256" placeholder:"MIB" help:"Frames and bodies being read and handled, for all clients together (${default})."`
	SendBudget int `env:"DOHOST_SEND_BUDGET" default:"256" placeholder:"MIB" help:"Frames waiting for clients, for all together; beyond it the slowest are disconnected (${default})."`
}

const mib = 1 << 20

// maxMiB is the largest value of a flag in MiB.
const maxMiB = 1 << 20

// sensible returns an error that names a flag whose value cannot be used.
func (f *limitFlags) sensible() error {
	for flag, v := range map[string]int{
		"--max-frame": f.MaxFrame, "--max-body": f.MaxBody, "--read-budget": f.ReadBudget, "--send-budget": f.SendBudget,
	} {
		if v < 0 || v > maxMiB {
			return fmt.Errorf("%s %d: want MiB, 1 to %d", flag, v, maxMiB)
		}
	}
	if f.ReadBudget > 0 && (f.MaxFrame > f.ReadBudget || f.MaxBody > f.ReadBudget) {
		return fmt.Errorf("--read-budget %d: want at least --max-frame %d and --max-body %d", f.ReadBudget, f.MaxFrame, f.MaxBody)
	}
	return nil
}

// set sets the host's share of the limits. Zero means the default there too.
func (f *limitFlags) set(o *dohost.Options) {
	o.MaxFrame, o.ReadBudget, o.SendBudget = f.MaxFrame*mib, int64(f.ReadBudget)*mib, int64(f.SendBudget)*mib
}

// Package crowd runs many WebSocket clients in a process of their own. So the cost of the clients
// does not count as cost of the server, and each process has its own limit of open files.
//
// All clients receive the same frame repeatedly. Each compares every frame with the expected text,
// answers pings, and counts. The child reports the number of completed rounds to the parent (a
// round is one frame per client), and in the end the smallest and the largest count.
package crowd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Config configure a crowd.
type Config struct {
	Address string // of the server
	Path    string // to request a WebSocket from; empty: the connections send nothing
	Clients int
	Text    string // of the frame that they expect
}

// Crowd is a child process. Its methods are for one goroutine.
type Crowd struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	rounds int
}

// message is a line from a child to the parent.
type message struct {
	Connected bool `json:",omitempty"`
	Rounds    int  `json:",omitempty"`
	Min       int  `json:",omitempty"`
	Max       int  `json:",omitempty"`
	Over      bool `json:",omitempty"`
	Error     string
}

// childEnv is the environment variable with a child's orders.
const childEnv = "DOHOST_CROWD"

// childTimeout is how long a child may be silent: it detects a hang, not a slow child.
const childTimeout = 2 * time.Minute

// Start starts a crowd, and returns when all clients are connected. The program must call
// [Child] first in main.
func Start(ctx context.Context, o Config) (*Crowd, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &Crowd{cmd: cmd, in: in, out: json.NewDecoder(bufio.NewReader(out))}
	n, err := c.readMessage()
	if err == nil && !n.Connected {
		err = fmt.Errorf("the first message of the crowd is %+v, want that it has connected", n)
	}
	if err != nil {
		return nil, errors.Join(err, in.Close(), cmd.Wait())
	}
	return c, nil
}

// readMessage reads a line.
func (c *Crowd) readMessage() (n message, err error) {
	late := time.AfterFunc(childTimeout, func() { _ = c.cmd.Process.Kill() }) // the kill ends the read
	defer late.Stop()
	if err := c.out.Decode(&n); err != nil {
		return n, fmt.Errorf("the crowd has ended, or told nothing for %v: %w", childTimeout, err)
	}
	if n.Error != "" {
		return n, errors.New(n.Error)
	}
	return n, nil
}

// Send makes the i-th client send a text.
func (c *Crowd) Send(i int, text string) error {
	return json.NewEncoder(c.in).Encode(sendOrder{i, text})
}

// WaitRounds waits until the clients have received as many frames, together, as in n rounds.
func (c *Crowd) WaitRounds(n int) error {
	for c.rounds < n {
		line, err := c.readMessage()
		if err != nil {
			return err
		}
		c.rounds = max(c.rounds, line.Rounds) // two readers may report out of order
	}
	return nil
}

// Close closes the connections, and returns the smallest and the largest count of a client.
func (c *Crowd) Close() (least, most int, err error) {
	err = c.in.Close()
	for err == nil {
		var n message
		if n, err = c.readMessage(); n.Over {
			least, most = n.Min, n.Max
			break
		}
	}
	return least, most, errors.Join(err, c.cmd.Wait())
}

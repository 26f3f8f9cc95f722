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

// Orders configure a crowd.
type Orders struct {
	Address string // of the server
	Path    string // to request a WebSocket from; empty: the connections send nothing
	Clients int
	Text    string // of the frame that they expect
}

// Crowd is a child process. Its methods are for one goroutine.
type Crowd struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	told int
}

// news is a line from a child to the parent.
type news struct {
	Connected bool `json:",omitempty"`
	Told      int  `json:",omitempty"`
	Least     int  `json:",omitempty"`
	Most      int  `json:",omitempty"`
	Over      bool `json:",omitempty"`
	Error     string
}

// childEnv is the environment variable with a child's orders.
const childEnv = "DOHOST_CROWD"

// patience is how long a child may be silent: it detects a hang, not a slow child.
const patience = 2 * time.Minute

// Gather starts a crowd, and returns when all clients are connected. The program must call
// [Child] first in main.
func Gather(ctx context.Context, o Orders) (*Crowd, error) {
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
	n, err := c.news()
	if err == nil && !n.Connected {
		err = fmt.Errorf("the crowd tells %+v", n)
	}
	if err != nil {
		return nil, errors.Join(err, in.Close(), cmd.Wait())
	}
	return c, nil
}

// news reads a line.
func (c *Crowd) news() (n news, err error) {
	late := time.AfterFunc(patience, func() { _ = c.cmd.Process.Kill() }) // the kill ends the read
	defer late.Stop()
	if err := c.out.Decode(&n); err != nil {
		return n, fmt.Errorf("the crowd has ended, or told nothing for %v: %w", patience, err)
	}
	if n.Error != "" {
		return n, errors.New(n.Error)
	}
	return n, nil
}

// Say makes the i-th client send a text.
func (c *Crowd) Say(i int, text string) error { return json.NewEncoder(c.in).Encode(say{i, text}) }

// Told waits until the clients have received as many frames, together, as in n rounds.
func (c *Crowd) Told(n int) error {
	for c.told < n {
		line, err := c.news()
		if err != nil {
			return err
		}
		c.told = max(c.told, line.Told) // two readers may report out of order
	}
	return nil
}

// Leave closes the connections, and returns the smallest and the largest count of a client.
func (c *Crowd) Leave() (least, most int, err error) {
	err = c.in.Close()
	for err == nil {
		var n news
		if n, err = c.news(); n.Over {
			least, most = n.Least, n.Most
			break
		}
	}
	return least, most, errors.Join(err, c.cmd.Wait())
}

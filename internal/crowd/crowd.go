// Package crowd is many WebSocket clients in a process of their own, so that what a server
// costs is not mixed with what its clients cost, and each of the two has its own limit of
// open files.
//
// The clients hear one frame again and again. Each compares what it gets with that, answers
// pings, and counts. The parent is told when as many frames have come as that many rounds
// have for all clients, and in the end what the least and the most was that one has heard.
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

// Orders are what a crowd is to do.
type Orders struct {
	Address string // where the server listens
	Path    string // that is asked for a WebSocket; empty: the connection is none, and says nothing
	Clients int
	Text    string // of the frame that they hear
}

// Crowd is a child process. Its methods are for one goroutine.
type Crowd struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	told int
}

// news is a line that a child tells.
type news struct {
	Connected bool `json:",omitempty"`
	Told      int  `json:",omitempty"`
	Least     int  `json:",omitempty"`
	Most      int  `json:",omitempty"`
	Over      bool `json:",omitempty"`
	Error     string
}

// childEnv is where a child finds its orders.
const childEnv = "DOHOST_CROWD"

// patience is how long a child may have nothing to tell: for what hangs, not for what is slow.
const patience = 2 * time.Minute

// Gather starts a crowd, and returns when all are connected. The program must call [Child]
// first of all.
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
	late := time.AfterFunc(patience, func() { _ = c.cmd.Process.Kill() }) // which ends the reading
	defer late.Stop()
	if err := c.out.Decode(&n); err != nil {
		return n, fmt.Errorf("the crowd has ended, or told nothing for %v: %w", patience, err)
	}
	if n.Error != "" {
		return n, errors.New(n.Error)
	}
	return n, nil
}

// Say has the i-th client send a text.
func (c *Crowd) Say(i int, text string) error { return json.NewEncoder(c.in).Encode(say{i, text}) }

// Told waits until the clients have heard as many frames, together, as n rounds have.
func (c *Crowd) Told(n int) error {
	for c.told < n {
		line, err := c.news()
		if err != nil {
			return err
		}
		c.told = max(c.told, line.Told) // two may tell at once
	}
	return nil
}

// Leave closes the connections, and tells what the least and the most is that one has heard.
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

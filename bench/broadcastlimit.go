package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/dohost/dohost/internal/crowd"
)

// plainEnv is the variable with the number of connections for the process of the plain side. It is a process of its
// own because of the limit of open files.
const plainEnv = "DOHOST_BENCH_PLAIN"

// plainSide writes the bytes of a frame to as many connections, one after the other, with a goroutine for each core.
func (b *bench) plainSide(ctx context.Context, clients int) (*fanOut, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), plainEnv+"="+strconv.Itoa(clients))
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
	shut := func() error { return errors.Join(in.Close(), cmd.Wait()) }
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(err, shut())
	}
	c, err := crowd.Start(ctx, crowd.Config{Address: strings.TrimSpace(address), Clients: clients, Text: broadcastText})
	if err != nil {
		return nil, errors.Join(err, shut())
	}
	return &fanOut{crowd: c, clients: clients, stop: shut, broadcast: func(context.Context) error {
		_, err := in.Write([]byte{'\n'})
		return err
	}}, nil
}

// plainChild is the process of the plain side, if this is one.
func plainChild() (status int, is bool) {
	clients, err := strconv.Atoi(os.Getenv(plainEnv))
	if err != nil {
		return 0, false
	}
	if err := servePlain(clients); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// servePlain writes a frame to all connections for each line of standard input.
func servePlain(clients int) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	conns := make([]net.Conn, clients)
	for i := range conns {
		if conns[i], err = l.Accept(); err != nil {
			return err
		}
	}
	frame := append([]byte{0x81, byte(len(broadcastText))}, broadcastText...)
	for lines := bufio.NewReader(os.Stdin); ; {
		switch _, err := lines.ReadByte(); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := writeAll(conns, frame); err != nil {
			return err
		}
	}
}

func writeAll(conns []net.Conn, frame []byte) error {
	var next atomic.Int64
	const share = 100
	return together(runtime.GOMAXPROCS(0), func(int) error {
		for {
			from := int(next.Add(share)) - share
			if from >= len(conns) {
				return nil
			}
			for _, c := range conns[from:min(from+share, len(conns))] {
				if _, err := c.Write(frame); err != nil {
					return err
				}
			}
		}
	})
}

// Package natstest runs servers of NATS as processes of a test binary, so that a test can kill and stop them.
package natstest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// serverEnv names the file of the configuration in the environment of a server's process.
const serverEnv = "NATSTEST_SERVER"

// Ready is the first line that a process of Start prints.
const Ready = "ready"

// Serve runs a server and ends the process, if Servers has started it; otherwise it returns. The main function of the tests calls it
// first.
func Serve() {
	config := os.Getenv(serverEnv)
	if config == "" {
		return
	}
	if err := serve(config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve runs a server until its standard input ends, as it does when the process of the test ends.
func serve(config string) error {
	o, err := server.ProcessConfigFile(config)
	if err != nil {
		return err
	}
	s, err := server.NewServer(o)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		return fmt.Errorf("the server %s is not ready", o.ServerName)
	}
	fmt.Println(Ready)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// Servers are a cluster, or one server. They have two users, app and system, with the password x.
type Servers struct {
	Processes map[string]*exec.Cmd // by the name of the server
	configs   map[string]string    // files, likewise
	addresses []string
}

// attempts limits the starts of servers, since another process may take a free port before its server does.
const attempts = 5

// Start starts servers, which sync after the given time, or "always". The end of the test ends them.
func Start(tb testing.TB, n int, sync string) *Servers {
	tb.Helper()
	for attempt := 1; ; attempt++ {
		s := &Servers{Processes: make(map[string]*exec.Cmd), configs: make(map[string]string)}
		err := s.start(tb, n, sync)
		if err == nil {
			err = s.ready(tb, n)
		}
		if err == nil {
			return s
		}
		if attempt == attempts {
			tb.Fatal(err)
		}
		for _, cmd := range s.Processes {
			_ = cmd.Process.Kill()
		}
	}
}

func (s *Servers) start(tb testing.TB, n int, sync string) error {
	ports := FreePorts(tb, 2*n)
	var routes []string
	for _, port := range ports[n:] {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", port))
	}
	for i := range n {
		name, dir, cluster := fmt.Sprint("n", i+1), tb.TempDir(), ""
		if n > 1 {
			cluster = fmt.Sprintf("cluster { name: test, listen: 127.0.0.1:%d, routes: [%s] }", ports[n+i], strings.Join(routes, ", "))
		}
		config := fmt.Sprintf(`
			server_name: %s
			listen: 127.0.0.1:%d
			log_file: %q
			jetstream { store_dir: %q, sync_interval: %s, max_file_store: 4GB, max_memory_store: 64MB }
			accounts {
				SYS { users: [{ user: system, password: x }] }
				APP { jetstream: enabled, users: [{ user: app, password: x }] }
			}
			system_account: SYS
			%s`, name, ports[i], filepath.Join(dir, "log"), filepath.Join(dir, "data"), sync, cluster)
		file := filepath.Join(dir, "server.conf")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			return err
		}
		s.addresses = append(s.addresses, fmt.Sprintf("127.0.0.1:%d", ports[i]))
		cmd, _, err := start(tb, serverEnv, file)
		if err != nil {
			return err
		}
		s.Processes[name], s.configs[name] = cmd, file
	}
	return nil
}

// Kill kills servers, all before it waits for the end of the first.
func (s *Servers) Kill(tb testing.TB, names ...string) {
	tb.Helper()
	for _, name := range names {
		if err := s.Processes[name].Process.Kill(); err != nil {
			tb.Fatal(err)
		}
	}
	for _, name := range names {
		_ = s.Processes[name].Wait() // its error is the signal
	}
}

// Restart starts servers that have ended, with their files and their addresses.
func (s *Servers) Restart(tb testing.TB, names ...string) {
	tb.Helper()
	for _, name := range names {
		for attempt := 1; ; attempt++ {
			cmd, _, err := start(tb, serverEnv, s.configs[name])
			if err == nil {
				s.Processes[name] = cmd
				break
			}
			if attempt == attempts {
				tb.Fatal(err)
			}
			select {
			case <-tb.Context().Done():
				tb.Fatal(tb.Context().Err())
			case <-time.After(time.Second): // another process may have its port
			}
		}
	}
}

// readyTime limits the wait for the election of leaders, which is slow on a busy machine.
const readyTime = time.Minute

// ready waits until the servers can make a stream that all of them keep.
func (s *Servers) ready(tb testing.TB, n int) error {
	ctx, cancel := context.WithTimeout(tb.Context(), readyTime)
	defer cancel()
	nc, err := nats.Connect(s.URL("app"))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := js.CreateStream(attempt, jetstream.StreamConfig{Name: "ready", Subjects: []string{"ready"}, Replicas: n})
		if err == nil {
			err = js.DeleteStream(attempt, "ready")
		}
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the servers are not ready: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Process starts the test binary with a variable in its environment, and waits for the line Ready. It returns the following lines of its
// output. The end of the test ends the process.
func Process(tb testing.TB, variable, value string) (*exec.Cmd, *bufio.Scanner) {
	tb.Helper()
	cmd, lines, err := start(tb, variable, value)
	if err != nil {
		tb.Fatal(err)
	}
	return cmd, lines
}

func start(tb testing.TB, variable, value string) (*exec.Cmd, *bufio.Scanner, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), variable+"="+value), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	tb.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill() // it has ended, or the test has
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != Ready {
		return nil, nil, fmt.Errorf("the process with %s=%s has not started: %q, %v", variable, value, lines.Text(), lines.Err())
	}
	return cmd, lines, nil
}

// FreePorts returns different ports of loopback that are free now. They are below the ports that systems give to outgoing connections. With
// one of these ports, a server that dials another server before that listens can get the same port for its own end, be connected to itself,
// and keep the other server from listening.
func FreePorts(tb testing.TB, n int) (ports []int) {
	tb.Helper()
	for attempts := 0; len(ports) < n; attempts++ {
		port := 15_000 + rand.IntN(15_000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			if attempts > 100*n {
				tb.Fatal(err)
			}
			continue
		}
		defer l.Close() // after all ports are known, so that they differ
		ports = append(ports, port)
	}
	return ports
}

// URL returns the URLs of all servers for a user, separated by commas.
func (s *Servers) URL(user string) string {
	var list []string
	for _, address := range s.addresses {
		list = append(list, "nats://"+user+":x@"+address)
	}
	return strings.Join(list, ",")
}

// Connect returns a connection of its own until the end of the test.
func (s *Servers) Connect(tb testing.TB, user string) *nats.Conn {
	tb.Helper()
	nc, err := nats.Connect(s.URL(user), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

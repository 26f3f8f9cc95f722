package natslog

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// The tests run servers and owners as processes, to kill and to stop them: the test binary with one of these variables.
const (
	serverEnv = "NATSLOG_TEST_SERVER" // the file of the server's configuration
	ownerEnv  = "NATSLOG_TEST_OWNER"  // the URLs of the servers
)

func TestMain(m *testing.M) {
	if config := os.Getenv(serverEnv); config != "" {
		exit(serve(config))
	}
	if urls := os.Getenv(ownerEnv); urls != "" {
		exit(own(context.Background(), urls))
	}
	// The tests wait for the ends of leases and for elections, and use little of the processors.
	if err := flag.Set("test.parallel", "8"); err != nil {
		exit(err)
	}
	os.Exit(m.Run())
}

func exit(err error) {
	if err != nil {
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
	fmt.Println(ready)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

const ready = "ready"

// servers are a cluster, or one server.
type servers struct {
	names     []string
	urls      []string
	processes map[string]*exec.Cmd // by name
}

// startServers starts servers that sync as sync says: "always", or after a time.
func startServers(tb testing.TB, n int, sync string) *servers {
	tb.Helper()
	s := &servers{processes: make(map[string]*exec.Cmd)}
	ports := freePorts(tb, 2*n)
	var routes []string
	for _, port := range ports[n:] {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", port))
	}
	for i := range n {
		name, dir := fmt.Sprint("n", i+1), tb.TempDir()
		cluster := ""
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
			tb.Fatal(err)
		}
		s.names, s.urls = append(s.names, name), append(s.urls, fmt.Sprintf("127.0.0.1:%d", ports[i]))
		s.processes[name], _ = startProcess(tb, serverEnv, file)
	}
	return s
}

// startProcess starts the test binary with a variable, and returns the lines of its output after the first one, which is "ready".
func startProcess(tb testing.TB, variable, value string) (*exec.Cmd, *bufio.Scanner) {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), variable+"="+value), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != ready {
		tb.Fatalf("the process with %s=%s has not started: %q, %v", variable, value, lines.Text(), lines.Err())
	}
	return cmd, lines
}

func freePorts(tb testing.TB, n int) (ports []int) {
	tb.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		defer l.Close() // after all ports are known, so that they differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// url returns the URL of all servers for a user.
func (s *servers) url(user string) string {
	var list []string
	for _, u := range s.urls {
		list = append(list, "nats://"+user+":x@"+u)
	}
	return strings.Join(list, ",")
}

func (s *servers) connect(tb testing.TB, user string) *nats.Conn {
	tb.Helper()
	nc, err := nats.Connect(s.url(user), connOptions...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

var connOptions = []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond), nats.ReconnectJitter(0, 0)}

// open opens a log with a connection of its own, as another process has it.
func (s *servers) open(tb testing.TB, cell string, o Options) *Log {
	tb.Helper()
	if o.System == nil && !o.UnsafeSync {
		o.System = s.connect(tb, "system")
	}
	l, err := Open(tb.Context(), s.connect(tb, "app"), cell, &o)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func acquire(tb testing.TB, l *Log) *lease {
	tb.Helper()
	o, err := l.Acquire(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = o.Release(context.WithoutCancel(tb.Context())) })
	return o.(*lease)
}

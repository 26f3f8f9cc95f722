// Package embedded runs a NATS server in the process of dohost serve. It is the only package of a program that links the server.
//
// The servers of all nodes are one cluster, with JetStream. Each syncs every message. The users of a server have a random password that
// only its own process knows; its port for clients is on loopback, and there is no monitoring port. The servers reach one another by routes.
// Routes use TLS with a certificate that every node derives from the secret of the cluster, so a process without the secret is refused, and
// cannot read the traffic.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dohost/dohost/cluster"
	"github.com/dohost/dohost/cluster/nats/natslog"
	"github.com/dohost/dohost/sharedlog"
)

// Flags are flags of dohost serve, for cli.App.SharedLog: the flags of package natslog, and flags for a server in the process.
type Flags struct {
	natslog.Flags

	Name   string   `name:"nats-server" env:"DOHOST_NATS_SERVER" placeholder:"NAME" help:"Run a NATS server with this name in the process, and keep the history on it and on the servers of the other nodes. It replaces --cluster, and needs --nats-routes and --cluster-secret."`
	Routes []string `name:"nats-routes" env:"DOHOST_NATS_ROUTES" placeholder:"NAME=HOST:PORT,..." help:"Names and addresses of all servers, this one included. All nodes need the same value."`
	Listen string   `name:"nats-listen" env:"DOHOST_NATS_LISTEN" placeholder:"ADDR" help:"Address where the server listens for the other servers: host:port. Default: its address in --nats-routes."`
	Dir    string   `name:"nats-dir" env:"DOHOST_NATS_DIR" placeholder:"DIR" help:"Folder of the server (./nats-data)."`

	server *node // nil before it has started
}

const (
	defaultDir = "./nats-data"
	// minServers is the smallest cluster that survives the loss of a server.
	minServers = 3
)

// OpenLog implements [cli.SharedLog]. It waits until enough servers run.
func (f *Flags) OpenLog(ctx context.Context, log *slog.Logger) (sharedlog.Log, error) {
	return open(ctx, f, log, f.Flags.OpenLog)
}

// OpenCells implements [cli.Cells]. It waits until enough servers run.
func (f *Flags) OpenCells(ctx context.Context, log *slog.Logger) (*cluster.Options, error) {
	return open(ctx, f, log, f.Flags.OpenCells)
}

// Stop stops the server, if there is one. Before that it passes the leadership of its streams to other servers.
func (f *Flags) Stop() {
	if f.server != nil {
		f.server.stop()
	}
}

// open calls a function of the embedded flags, and repeats it while the servers are not available. A server in the process starts with the
// program, so the other servers may start later.
func open[T any](ctx context.Context, f *Flags, log *slog.Logger, call func(context.Context, *slog.Logger) (T, error)) (T, error) {
	var none T
	if f.Name == "" {
		if len(f.Routes) > 0 || f.Listen != "" || f.Dir != "" {
			return none, errors.New("--nats-routes, --nats-listen and --nats-dir: want --nats-server, too")
		}
		return call(ctx, log)
	}
	c, err := f.config(log)
	if err != nil {
		return none, err
	}
	f.Connect = func(secret []byte) (app, system connection, err error) {
		if f.server == nil {
			if f.server, err = start(c, secret); err != nil {
				return nil, nil, fmt.Errorf("--nats-server: %w", err)
			}
		}
		return f.server.connect()
	}
	for logged := (time.Time{}); ; {
		opened, err := call(ctx, log)
		if err == nil || !errors.Is(err, sharedlog.ErrUnavailable) {
			return opened, err
		}
		if now := time.Now(); now.Sub(logged) >= logTime {
			logged = now
			log.Warn("waiting for the NATS servers of other nodes: most servers must run, and all of them when the cluster starts for the first time",
				"server", f.Name, "not_connected", strings.Join(f.server.absent(), ","), "err", err)
		}
		select {
		case <-ctx.Done():
			return none, context.Cause(ctx)
		case <-time.After(retryTime):
		}
	}
}

const (
	// retryTime is the pause after a failed attempt, which takes several seconds itself.
	retryTime = 100 * time.Millisecond
	// logTime is the time between two lines of the log about the wait.
	logTime = 10 * time.Second
)

// config is the configuration of a server, from valid flags.
type config struct {
	name, dir string
	listen    route
	routes    []route
	log       *slog.Logger
}

// route is the address of a server for the other servers.
type route struct {
	name, host string
	port       int
}

var serverName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// config returns an error that names a flag with an invalid value, or the configuration.
func (f *Flags) config(log *slog.Logger) (c config, err error) {
	c = config{name: f.Name, dir: f.Dir, log: log}
	if c.dir == "" {
		c.dir = defaultDir
	}
	if f.Cluster != "" || f.ClusterCreds != "" || f.System != "" || f.SystemCreds != "" {
		return c, errors.New("--nats-server: want neither --cluster nor --cluster-system, nor their credentials: the node connects to its own server")
	}
	if len(f.Routes) == 0 || f.Secret == "" {
		return c, errors.New("--nats-server: want --nats-routes and --cluster-secret, too")
	}
	if c.routes, err = parseRoutes(f.Routes); err != nil {
		return c, err
	}
	for _, r := range c.routes {
		if r.name == f.Name {
			c.listen = r
		}
	}
	switch {
	case c.listen.name == "":
		return c, fmt.Errorf("--nats-server %s: want a name in --nats-routes", f.Name)
	case len(c.routes) < minServers && !f.UnsafeReplicas:
		return c, fmt.Errorf("--nats-routes: want at least %d servers, or --unsafe-replicas", minServers)
	case f.Replicas > len(c.routes):
		return c, fmt.Errorf("--cluster-replicas %d: --nats-routes has only %d servers", f.Replicas, len(c.routes))
	}
	if f.Listen != "" {
		if c.listen, err = parseAddress(f.Listen); err != nil {
			return c, fmt.Errorf("--nats-listen %q: %w", f.Listen, err)
		}
	}
	return c, nil
}

// parseRoutes returns routes with different names and addresses.
func parseRoutes(list []string) (routes []route, err error) {
	known := make(map[string]bool)
	for _, text := range list {
		name, address, ok := strings.Cut(text, "=")
		if !ok || !serverName.MatchString(name) {
			return nil, fmt.Errorf("--nats-routes %q: want NAME=HOST:PORT, with a name of 1 to 64 letters, digits, underscores or hyphens", text)
		}
		r, err := parseAddress(address)
		if err != nil {
			return nil, fmt.Errorf("--nats-routes %q: %w", text, err)
		}
		if r.host == "" {
			return nil, fmt.Errorf("--nats-routes %q: want the host, which the other nodes connect to", text)
		}
		if known[name] || known[address] {
			return nil, fmt.Errorf("--nats-routes %q: another server has this name or this address", text)
		}
		known[name], known[address] = true, true
		r.name = name
		routes = append(routes, r)
	}
	return routes, nil
}

// parseAddress returns the parts of host:port.
func parseAddress(address string) (r route, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return r, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return r, fmt.Errorf("port %q: want 1 to 65535", port)
	}
	return route{host: host, port: int(n)}, nil
}

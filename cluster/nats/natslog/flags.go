package natslog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dohost/dohost/cluster"
	"github.com/dohost/dohost/sharedlog"
)

// Flags are flags of dohost serve, for cli.App.SharedLog.
type Flags struct {
	Cluster      string        `env:"DOHOST_CLUSTER" placeholder:"URL,..." help:"Keep the history in NATS JetStream on these servers. If another process owns the cell, wait until that process has ended."`
	Cell         string        `env:"DOHOST_CELL" default:"main" placeholder:"NAME" help:"Name of the history in the cluster (${default}); with --cells, of the cluster of nodes."`
	Cells        int           `env:"DOHOST_CELLS" placeholder:"N" help:"Divide the objects among N cells, and the cells among all nodes with the same --cell. N is 1 to 1024, and cannot be changed later."`
	Advertise    string        `env:"DOHOST_ADVERTISE" placeholder:"URL" help:"URL of this node for other nodes, with --cells; needed if --listen names no address."`
	Secret       string        `name:"cluster-secret" env:"DOHOST_CLUSTER_SECRET" placeholder:"FILE" help:"File with a secret of at least 16 bytes that all nodes have, with --cells, and for a server in the process."`
	ClusterCreds string        `env:"DOHOST_CLUSTER_CREDS" placeholder:"FILE" help:"File of credentials for --cluster."`
	System       string        `name:"cluster-system" env:"DOHOST_CLUSTER_SYSTEM" placeholder:"URL,..." help:"The same servers with a user of the system account, to check their configuration."`
	SystemCreds  string        `name:"cluster-system-creds" env:"DOHOST_CLUSTER_SYSTEM_CREDS" placeholder:"FILE" help:"File of credentials for --cluster-system."`
	Replicas     int           `name:"cluster-replicas" env:"DOHOST_CLUSTER_REPLICAS" default:"3" placeholder:"N" help:"Servers that keep each record (${default})."`
	LeaseTime    time.Duration `name:"cluster-lease" env:"DOHOST_CLUSTER_LEASE" default:"3s" placeholder:"TIME" help:"Replace an owner that is silent for this long, in whole seconds (${default})."`

	UnsafeReplicas bool `name:"unsafe-replicas" help:"Accept fewer than three replicas, for development."`
	UnsafeSync     bool `name:"unsafe-sync" help:"Accept servers that do not sync each record: a power failure may lose acknowledged writes."`
	UnsafeVersion  bool `name:"unsafe-version" help:"Accept servers that are older than the tested version."`

	// Connect returns connections with a user of an account with JetStream and with a user of the system account. They replace those to
	// the URLs of Cluster and System. secret is the content of the file Secret. OpenLog and OpenCells call Connect each time that they are
	// called, and close the connections if they fail. Nil chooses the URLs.
	Connect func(secret []byte) (app, system *nats.Conn, err error) `kong:"-"`
}

// OpenLog returns the log of the cell, or nil without --cluster. Its connections stay open until the process ends. log gets warnings.
func (f *Flags) OpenLog(ctx context.Context, log *slog.Logger) (sharedlog.Log, error) {
	if f.Cluster == "" && f.Connect == nil {
		return nil, nil
	}
	var secret []byte
	if f.Connect != nil {
		var err error
		if secret, err = readSecret(f.Secret, log); err != nil {
			return nil, fmt.Errorf("--cluster-secret: %w", err)
		}
	}
	l, err := connected(f, secret, func(nc *nats.Conn, o *Options) (*Log, error) { return Open(ctx, nc, f.Cell, o) })
	if err != nil {
		return nil, err
	}
	return l, nil
}

// OpenCells returns the options of a node, or nil without --cells. Its connections stay open until the process ends. log gets warnings.
func (f *Flags) OpenCells(ctx context.Context, log *slog.Logger) (*cluster.Options, error) {
	if f.Cells == 0 {
		if f.Advertise != "" || f.Secret != "" && f.Connect == nil {
			return nil, errors.New("--advertise and --cluster-secret: want neither of them without --cells")
		}
		return nil, nil
	}
	if f.Cluster == "" && f.Connect == nil || f.Secret == "" {
		return nil, errors.New("--cells: want --cluster and --cluster-secret, too")
	}
	if f.Cells < 1 || f.Cells > cluster.MaxCells {
		return nil, fmt.Errorf("--cells %d: want 1 to %d", f.Cells, cluster.MaxCells)
	}
	secret, err := readSecret(f.Secret, log)
	if err != nil {
		return nil, fmt.Errorf("--cluster-secret: %w", err)
	}
	return connected(f, secret, func(nc *nats.Conn, o *Options) (*cluster.Options, error) {
		o.Logger = log
		table, err := OpenTable(ctx, nc, f.Cell, o)
		if err != nil {
			return nil, err
		}
		return &cluster.Options{
			Table: table, TTL: table.TTL(), Cells: f.Cells, Advertise: f.Advertise, Secret: secret,
			Log: func(ctx context.Context, cell int) (sharedlog.Log, error) { return table.Log(ctx, cell, f.Cells) },
		}, nil
	})
}

// readSecret reads the file of a secret, without spaces and newlines around it.
func readSecret(path string, log *slog.Logger) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	data = bytes.TrimSpace(data)
	if len(data) < cluster.MinSecret {
		return nil, fmt.Errorf("%s: the secret has %d bytes, want at least %d", path, len(data), cluster.MinSecret)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if runtime.GOOS != "windows" && info.Mode()&0o004 != 0 {
		log.Warn("every user of this machine can read the secret of the cluster", "file", path, "want", "mode 0600")
	}
	return data, nil
}

// connected calls open with connections to the servers, and closes them if it fails.
func connected[T any](f *Flags, secret []byte, open func(*nats.Conn, *Options) (*T, error)) (*T, error) {
	o := &Options{
		Replicas: f.Replicas, LeaseTime: f.LeaseTime, UnsafeReplicas: f.UnsafeReplicas, UnsafeSync: f.UnsafeSync, UnsafeVersion: f.UnsafeVersion,
	}
	connect, source := f.Connect, "--nats-server"
	if connect == nil {
		connect, source = func([]byte) (app, system *nats.Conn, err error) { return f.connectURLs() }, "--cluster"
	}
	nc, system, err := connect(secret)
	if err != nil {
		return nil, err
	}
	o.System = system
	opened, err := open(nc, o)
	if err != nil {
		nc.Close()
		if system != nil {
			system.Close()
		}
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return opened, nil
}

// connectURLs connects to the servers of the flags. system is nil without --cluster-system.
func (f *Flags) connectURLs() (app, system *nats.Conn, err error) {
	if f.System == "" && !f.UnsafeSync {
		return nil, nil, errors.New("--cluster-system: want the URLs of the servers with a user of the system account, to check that they sync each record, or --unsafe-sync")
	}
	if app, err = connect(f.Cluster, f.ClusterCreds); err != nil {
		return nil, nil, fmt.Errorf("--cluster: %w", err)
	}
	if f.System != "" {
		if system, err = connect(f.System, f.SystemCreds); err != nil {
			app.Close()
			return nil, nil, fmt.Errorf("--cluster-system: %w", err)
		}
	}
	return app, system, nil
}

// The connection to a server that is silent for maxPings+1 times pingTime is replaced by one to another server: a server that is suspended,
// or whose machine is lost, does not close it.
const (
	pingTime = time.Second
	maxPings = 2
)

func connect(urls, creds string) (*nats.Conn, error) {
	options := []nats.Option{
		nats.Name("dohost"), nats.MaxReconnects(-1), nats.ReconnectWait(retryTime), nats.PingInterval(pingTime), nats.MaxPingsOutstanding(maxPings),
	}
	if creds != "" {
		options = append(options, nats.UserCredentials(creds))
	}
	return nats.Connect(urls, options...)
}

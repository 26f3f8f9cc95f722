package natslog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dohost/dohost/sharedlog"
)

// Flags are flags of dohost serve, for cli.App.SharedLog.
type Flags struct {
	Cluster      string        `env:"DOHOST_CLUSTER" placeholder:"URL,..." help:"Keep the history in NATS JetStream on these servers. If another process owns the cell, wait until that process has ended."`
	Cell         string        `env:"DOHOST_CELL" default:"main" placeholder:"NAME" help:"Name of the history in the cluster (${default})."`
	ClusterCreds string        `env:"DOHOST_CLUSTER_CREDS" placeholder:"FILE" help:"File of credentials for --cluster."`
	System       string        `name:"cluster-system" env:"DOHOST_CLUSTER_SYSTEM" placeholder:"URL,..." help:"The same servers with a user of the system account, to check their configuration."`
	SystemCreds  string        `name:"cluster-system-creds" env:"DOHOST_CLUSTER_SYSTEM_CREDS" placeholder:"FILE" help:"File of credentials for --cluster-system."`
	Replicas     int           `name:"cluster-replicas" env:"DOHOST_CLUSTER_REPLICAS" default:"3" placeholder:"N" help:"Servers that keep each record (${default})."`
	LeaseTime    time.Duration `name:"cluster-lease" env:"DOHOST_CLUSTER_LEASE" default:"3s" placeholder:"TIME" help:"Replace an owner that is silent for this long, in whole seconds (${default})."`

	UnsafeReplicas bool `name:"unsafe-replicas" help:"Accept fewer than three replicas, for development."`
	UnsafeSync     bool `name:"unsafe-sync" help:"Accept servers that do not sync each record: a power failure may lose acknowledged writes."`
	UnsafeVersion  bool `name:"unsafe-version" help:"Accept servers that are older than the tested version."`
}

// OpenLog returns the log of the cell, or nil without --cluster. Its connections stay open until the process ends.
func (f *Flags) OpenLog(ctx context.Context) (sharedlog.Log, error) {
	if f.Cluster == "" {
		return nil, nil
	}
	o := &Options{
		Replicas: f.Replicas, LeaseTime: f.LeaseTime, UnsafeReplicas: f.UnsafeReplicas, UnsafeSync: f.UnsafeSync, UnsafeVersion: f.UnsafeVersion,
	}
	if f.System == "" && !f.UnsafeSync {
		return nil, errors.New("--cluster-system: want the URLs of the servers with a user of the system account, to check that they sync each record, or --unsafe-sync")
	}
	nc, err := connect(f.Cluster, f.ClusterCreds)
	if err != nil {
		return nil, fmt.Errorf("--cluster: %w", err)
	}
	if f.System != "" {
		if o.System, err = connect(f.System, f.SystemCreds); err != nil {
			nc.Close()
			return nil, fmt.Errorf("--cluster-system: %w", err)
		}
	}
	l, err := Open(ctx, nc, f.Cell, o)
	if err != nil {
		nc.Close()
		if o.System != nil {
			o.System.Close()
		}
		return nil, fmt.Errorf("--cluster: %w", err)
	}
	return l, nil
}

func connect(urls, creds string) (*nats.Conn, error) {
	options := []nats.Option{nats.Name("dohost"), nats.MaxReconnects(-1), nats.ReconnectWait(retryTime)}
	if creds != "" {
		options = append(options, nats.UserCredentials(creds))
	}
	return nats.Connect(urls, options...)
}

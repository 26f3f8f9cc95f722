package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/sharedlog"
)

// MinSecret is the smallest length of a secret: 16 bytes.
const MinSecret = minSecret

// Options are the options of a node. The node calls Log and Open from several goroutines, but for each cell from one at a time.
type Options struct {
	// Table has the members and the plan. Required.
	Table Table
	// TTL is the time to live of the records of Table. The node renews its record three times in it, and reads the table six times. Required.
	TTL time.Duration
	// Cells is the number of cells of a new cluster, 1 to MaxCells. Start returns an error if the cluster has another number. Zero means
	// DefaultCells.
	Cells int
	// Advertise is the URL of this node for other nodes, with http or https and without a path, such as http://10.0.0.7:8787. A loopback
	// address is for tests on one machine: Start logs a warning. Required.
	Advertise string
	// ReleaseTime is the longest time that a node regularly needs to release a log: for an Open that has begun, and then for Close. A node
	// waits for a log this long and four times TTL, before it gives the cell back, and gets no cells for a while.
	ReleaseTime time.Duration
	// Secret signs the requests that nodes pass on, calls of objects, and links of durable sockets. It is the same on all nodes, and has at
	// least MinSecret bytes. Required.
	Secret []byte
	// Log returns the log of a cell. It may be called several times for each. The leases of the logs may end with the record in Table: the node
	// calls Log after the first Renew, and has released all leases before Leave. Required.
	Log func(ctx context.Context, cell int) (sharedlog.Log, error)
	// Open opens the host of a cell on a lease. remote is the node, for dohost.Options.Remote. If Open fails, the node releases the lease, and
	// acquires the log again after a pause of 1 s, doubled for each further failure, up to 1 min. Required.
	Open func(cell int, lease sharedlog.Lease, remote dohost.Remote) (Host, error)
	// Cell returns the cell of an object, for calls of objects. It is called concurrently. Nil means [CellOf].
	Cell func(id dohost.ID) int
	// Logger gets the changes of cells, and failures. Nil discards them.
	Logger *slog.Logger
}

// check returns the options with their defaults. It warns about an address that is for the nodes of one machine only.
func (o *Options) check() (Options, error) {
	c := *o
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Cells == 0 {
		c.Cells = DefaultCells
	}
	if c.Cell == nil {
		c.Cell = func(id dohost.ID) int { return CellOf(id, c.Cells) }
	}
	if c.TTL <= 0 || c.Table == nil || c.Log == nil || c.Open == nil {
		return c, errors.New("cluster: want Options.Table, TTL, Log and Open")
	}
	if len(c.Secret) < minSecret {
		return c, fmt.Errorf("cluster: the secret has %d bytes, want at least %d", len(c.Secret), minSecret)
	}
	u, err := url.Parse(c.Advertise)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return c, fmt.Errorf("cluster: address %q: want a URL for other nodes, such as http://10.0.0.7:8787", c.Advertise)
	}
	if isUnspecified(u.Hostname()) {
		return c, fmt.Errorf("cluster: address %q: want one that other nodes can connect to, such as http://10.0.0.7:8787", c.Advertise)
	}
	if isHere(u.Hostname()) {
		c.Logger.Warn("other machines cannot reach this node at its address: they would send its requests, with the tokens of clients, to themselves",
			"address", c.Advertise)
	}
	return c, nil
}

// isHere reports whether a host is the machine of the node that connects to it.
func isHere(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}

// isUnspecified reports whether a host is an address to listen at, such as 0.0.0.0.
func isUnspecified(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().WithZone("").IsUnspecified()
}

// wait is the time after which a node gives back a cell whose log it cannot acquire.
func (o *Options) wait() time.Duration { return o.ReleaseTime + patience*o.TTL }

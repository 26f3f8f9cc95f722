package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"path/filepath"
	"strconv"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/cluster"
	"github.com/dohost/dohost/sharedlog"
	"github.com/dohost/dohost/web"
)

// Cells is a [SharedLog] that can divide the objects among the cells of several nodes.
type Cells interface {
	SharedLog
	// OpenCells returns the options of a node, or nil if the flags choose one host. The command sets Open, Cell, ReleaseTime and Logger, and
	// Cells and Advertise if they are zero. log gets warnings.
	OpenCells(ctx context.Context, log *slog.Logger) (*cluster.Options, error)
}

// openCells returns the cells that the flags choose, or nil.
func (c *serveCmd) openCells(ctx context.Context, log *slog.Logger) (cells *cluster.Options, err error) {
	for _, p := range c.Plugins {
		if p, ok := p.(Cells); ok {
			if cells, err = p.OpenCells(ctx, log); err != nil {
				return nil, err
			}
		}
	}
	if cells != nil && (c.SharedLog != "" || c.Ship != "" || c.Streams) {
		return nil, errors.New("--shared-log, --ship and --streams: want none of them with cells")
	}
	return cells, nil
}

// cellMemory is Options.StoreMemory of a cell.
const cellMemory = 8 << 20

// cellHost is the host of a cell, with its handlers.
type cellHost struct {
	*dohost.Host
	http.Handler
	admin http.Handler
}

// serveCells runs a node of a cluster until a signal.
func (s *server) serveCells(ctx context.Context, c *serveCmd, cells *cluster.Options, classes []dohost.Class) error {
	node, err := s.openNode(ctx, c, cells, classes)
	if err != nil {
		return errors.Join(err, s.closeListeners())
	}
	signals := s.signals()
	defer signal.Stop(signals)
	s.start()
	var failure error
	select {
	case sig := <-signals:
		fmt.Fprintf(s.std.err, "dohost: %v: giving the cells to other nodes; a second signal ends the process immediately\n", sig)
	case failure = <-s.served:
	case <-ctx.Done():
	}
	s.closing.Store(true)
	closed := make(chan error, 1)
	go func() { closed <- s.leave(context.WithoutCancel(ctx), node, c.Grace) }()
	select {
	case err := <-closed:
		return errors.Join(failure, err)
	case <-signals:
		return errSecondSignal
	}
}

// openNode opens the listeners, and starts the node.
func (s *server) openNode(ctx context.Context, c *serveCmd, cells *cluster.Options, classes []dohost.Class) (*cluster.Node, error) {
	allowed, err := s.prepare(c)
	if err != nil {
		return nil, err
	}
	o := *cells
	o.Logger, o.Cells = s.log, cmp.Or(o.Cells, cluster.DefaultCells)
	if err := s.listen(ctx, c, o.Cells); err != nil {
		return nil, err
	}
	o.Open = func(cell int, lease sharedlog.Lease, remote dohost.Remote) (cluster.Host, error) {
		return s.openCell(c, &allowed, &clusterCell{cell, o.Cells, lease, remote}, classes)
	}
	o.Cell = func(id dohost.ID) int { return cellOf(id, o.Cells) }
	o.ReleaseTime = openTime + c.Grace
	if o.Advertise == "" {
		if o.Advertise, err = s.address(); err != nil {
			return nil, err
		}
	}
	node, err := cluster.Start(ctx, &o)
	if err != nil {
		return nil, err
	}
	s.public = s.newServer(node.Router(s.routerOptions(c, &allowed, o.Cells, classes)))
	if s.adminAt != nil {
		s.warnAboutAdmin(c, &allowed)
		s.admin = s.newServer(web.AdminCells(adminOf(node), s.adminOptions(c, &allowed, nil)))
	}
	return node, nil
}

// routerOptions returns the options of the router of a node.
func (s *server) routerOptions(c *serveCmd, allowed *access, cells int, classes []dohost.Class) *cluster.RouterOptions {
	public := s.publicOptions(c, allowed, nil)
	object := web.ObjectOf(classes, public)
	durable := map[string]bool{}
	for _, c := range classes {
		durable[c.Name()] = c.DurableSockets()
	}
	return &cluster.RouterOptions{
		Cell: func(r *http.Request) (int, bool) {
			id, ok := object(r)
			return cellOf(id, cells), ok
		},
		Durable: func(r *http.Request) (dohost.ID, bool) {
			id, ok := object(r)
			return id, ok && durable[id.Class]
		},
		MaxFrame: int64(c.MaxFrame) * mib,
		Bound:    func(next http.Handler) http.Handler { return web.BoundBodies(public, next) },
	}
}

// adminOf is the part of an operator's handler that depends on the node.
func adminOf(node *cluster.Node) *web.Cells {
	return &web.Cells{
		Status: func() any { return node.Status() },
		Admin: func(cell int) http.Handler {
			if h, ok := node.Host(cell).(*cellHost); ok {
				return h.admin
			}
			return nil
		},
	}
}

// openTime is the assumed maximum of the time for opening a host: it may read the last base and the records since.
const openTime = 30 * time.Second

// drainTime is the time that other nodes have to take all cells, in addition to the time of the handlers.
const drainTime = 30 * time.Second

// leave gives the cells to other nodes, closes the remaining cells, and sends the last answers. It waits for requests that this node has
// passed on as well as for requests of its own handlers.
func (s *server) leave(ctx context.Context, node *cluster.Node, grace time.Duration) error {
	draining, cancel := context.WithTimeout(ctx, drainTime+grace)
	defer cancel()
	if err := node.Drain(draining); err != nil {
		s.log.Warn("the other nodes have not taken all cells in time", "err", err)
	}
	return errors.Join(node.Close(ctx), s.shutDown(ctx, max(grace, shutdownTime)))
}

// cellOf returns the cell of an object. A sub-agent is in the cell of its root.
func cellOf(id dohost.ID, cells int) int { return cluster.CellOf(agent.RootOf(id), cells) }

// clusterCell is a cell that a node has acquired.
type clusterCell struct {
	number, of int
	lease      sharedlog.Lease
	remote     dohost.Remote // for objects of other cells
}

// openCell opens the host of a cell.
func (s *server) openCell(c *serveCmd, allowed *access, cell *clusterCell, classes []dohost.Class) (cluster.Host, error) {
	metrics, log := web.NewMetrics(), s.log.With("cell", cell.number)
	o := s.hostOptions(c, log, metrics, cell.lease)
	o.StoreMemory, o.Remote = cellMemory, cell.remote
	o.Holds = func(id dohost.ID) bool { return cellOf(id, cell.of) == cell.number }
	h, err := dohost.Open(filepath.Join(c.Data, "cells", strconv.Itoa(cell.number)), o, classes...)
	if err != nil {
		return nil, err
	}
	metrics.Watch(h)
	public, admin := s.publicOptions(c, allowed, metrics), s.adminOptions(c, allowed, metrics)
	public.Logger, admin.Logger = log, log
	return &cellHost{Host: h, Handler: web.Handler(h, public), admin: web.Admin(h, admin)}, nil
}

// address returns the URL of the listener for other nodes.
func (s *server) address() (string, error) {
	at := s.publicAt.Addr()
	if tcp, ok := at.(*net.TCPAddr); !ok || tcp.IP.IsUnspecified() {
		return "", fmt.Errorf("--advertise: want the URL of this node for other nodes, since --listen %v names no address", at)
	}
	if s.cert != "" {
		return "https://" + at.String(), nil
	}
	return "http://" + at.String(), nil
}

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cluster"
	"github.com/dohost/dohost/examples/counter"
	"github.com/dohost/dohost/sharedlog"
	"github.com/dohost/dohost/sharedlog/logtest"
	"github.com/dohost/dohost/web"
)

// memory is a table for one node, in memory. Package cluster/nats/natslog has one for several machines.
type memory struct {
	mu   sync.Mutex
	snap cluster.Snapshot
}

func (m *memory) Renew(_ context.Context, member cluster.Member) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.snap.Members = []cluster.Member{member}
	return nil
}

func (m *memory) Leave(context.Context, string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.snap.Members = nil
	return nil
}

func (m *memory) Read(context.Context) (cluster.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.snap, nil
}

func (m *memory) Swap(_ context.Context, revision uint64, p cluster.Plan) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if revision != m.snap.Revision {
		return 0, cluster.ErrConflict
	}
	m.snap.Plan, m.snap.Revision = p, revision+1
	return m.snap.Revision, nil
}

func (m *memory) Changed() <-chan struct{} { return nil }

// cellHost is the host of a cell, with its handler.
type cellHost struct {
	*dohost.Host
	http.Handler
}

// cells is the number of cells of the cluster.
const cells = 2

// options returns the options of a node that has the directories of its cells below dir.
func options(dir, address string, handlers *web.Options) *cluster.Options {
	logs := []*logtest.Log{{}, {}} // in place of logs that all machines reach
	return &cluster.Options{
		Table: &memory{}, TTL: 3 * time.Second, Cells: cells, Advertise: address, Secret: []byte("at least 16 bytes"),
		Log: func(_ context.Context, cell int) (sharedlog.Log, error) { return logs[cell], nil },
		Open: func(cell int, lease sharedlog.Lease, remote dohost.Remote) (cluster.Host, error) {
			h, err := dohost.Open(filepath.Join(dir, strconv.Itoa(cell)), &dohost.Options{
				Lease: lease, Remote: remote,
				Holds: func(id dohost.ID) bool { return cluster.CellOf(id, cells) == cell },
			}, counter.Class())
			if err != nil {
				return nil, err
			}
			return cellHost{h, web.Handler(h, handlers)}, nil
		},
	}
}

var errUnavailable = errors.New("no node serves the cell")

// add adds 1 to a counter. A request with the status 503 has not run, so add sends it again.
func add(ctx context.Context, node, name string) (text string, err error) {
	unavailable := func(err error, _ int) bool { return errors.Is(err, errUnavailable) }
	err = dohost.Retry(ctx, &dohost.RetryPolicy{MaxAttempts: -1, BaseDelay: 10 * time.Millisecond, ShouldRetry: unavailable}, func(context.Context) error {
		answer, err := http.Post(node+"/objects/counter/"+name+"/add", "application/json", strings.NewReader("1"))
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode == http.StatusServiceUnavailable {
			return errUnavailable
		}
		body, err := io.ReadAll(answer.Body)
		text = strings.TrimSpace(string(body))
		return err
	})
	return text, err
}

// A node serves the objects of two cells, each with a host and a log of its own. A second node with the same table and
// the same logs would take one of the cells, and both would accept requests for all objects.
func Example() {
	dir, err := os.MkdirTemp("", "dohost")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	server := httptest.NewUnstartedServer(nil)
	address := "http://" + server.Listener.Addr().String()
	handlers := &web.Options{Classes: []string{"counter"}}

	ctx := context.Background()
	node, err := cluster.Start(ctx, options(dir, address, handlers))
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close(ctx)
	object := web.ObjectOf([]dohost.Class{counter.Class()}, handlers)
	server.Config.Handler = node.Router(&cluster.RouterOptions{Cell: func(r *http.Request) (int, bool) {
		id, ok := object(r)
		return cluster.CellOf(id, cells), ok
	}})
	server.Start()
	defer server.Close()

	for _, name := range []string{"alice", "bob", "alice"} {
		total, err := add(ctx, server.URL, name)
		fmt.Println(name, cluster.CellOf(dohost.ID{Class: "counter", Name: name}, cells), total, err)
	}
	// Output:
	// alice 0 1 <nil>
	// bob 1 1 <nil>
	// alice 0 2 <nil>
}

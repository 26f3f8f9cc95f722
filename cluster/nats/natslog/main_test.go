package natslog

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dohost/dohost/cluster"
	"github.com/dohost/dohost/cluster/nats/internal/natstest"
	"github.com/dohost/dohost/sharedlog"
)

// ownerEnv has the URLs of the servers in the environment of an owner's process, and nodeEnv in that of a node with cells.
const (
	ownerEnv = "NATSLOG_TEST_OWNER"
	nodeEnv  = "NATSLOG_TEST_NODE"
)

func TestMain(m *testing.M) {
	natstest.Serve()
	err := error(nil)
	if urls := os.Getenv(ownerEnv); urls != "" {
		err = own(context.Background(), urls)
	} else if urls := os.Getenv(nodeEnv); urls != "" {
		err = ownCells(context.Background(), urls)
	} else if err = flag.Set("test.parallel", "8"); err == nil { // the tests wait, and use little of the processors
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// own is the process of an owner. It appends records until an append fails, and prints the number of each one, then the error.
func own(ctx context.Context, urls string) error {
	nc, err := nats.Connect(urls)
	if err != nil {
		return err
	}
	l, err := Open(ctx, nc, "main", &Options{UnsafeSync: true, LeaseTime: testLease})
	if err != nil {
		return err
	}
	o, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	fmt.Println(natstest.Ready)
	for n := uint64(1); ; n++ {
		if err := appendAsHost(ctx, o, n); err != nil {
			fmt.Println(err)
			return nil
		}
		fmt.Println(n)
	}
}

// appendAsHost appends a record until its outcome is known.
func appendAsHost(ctx context.Context, o sharedlog.Lease, n uint64) error {
	err := o.Append(ctx, n, record(n))
	for errors.Is(err, sharedlog.ErrUnknown) || errors.Is(err, sharedlog.ErrUnavailable) {
		if err = sleep(ctx, retryTime); err == nil {
			err = o.Append(ctx, n, record(n))
		}
	}
	return err
}

// ownCells is the process of a node with two cells. It appends records to both until the appends fail, and prints the number of each one,
// then the errors.
func ownCells(ctx context.Context, urls string) error {
	nc, err := nats.Connect(urls)
	if err != nil {
		return err
	}
	o := single
	o.UnsafeSync = true
	table, err := OpenTable(ctx, nc, "main", &o)
	if err != nil {
		return err
	}
	renew := func() error { return table.Renew(ctx, cluster.Member{ID: "child", Address: "http://child"}) }
	if err := renew(); err != nil {
		return err
	}
	go func() {
		for range time.Tick(testLease / renewals) {
			_ = renew() // after the process was stopped it begins another session
		}
	}()
	var leases []sharedlog.Lease
	for cell := range 2 {
		l, err := table.Log(ctx, cell, nodeCells)
		if err != nil {
			return err
		}
		lease, err := l.Acquire(ctx)
		if err != nil {
			return err
		}
		leases = append(leases, lease)
	}
	fmt.Println(natstest.Ready)
	for n := uint64(1); len(leases) > 0; n++ {
		leases = slices.DeleteFunc(leases, func(lease sharedlog.Lease) bool {
			err := appendAsHost(ctx, lease, n)
			if err != nil {
				fmt.Println(err)
			}
			return err != nil
		})
		fmt.Println(n)
	}
	return nil
}

// open opens a log with a connection of its own, as another process has it.
func open(tb testing.TB, s *natstest.Servers, cell string, o Options) *Log {
	tb.Helper()
	if o.System == nil {
		o.System = s.Connect(tb, "system")
	}
	l, err := Open(tb.Context(), s.Connect(tb, "app"), cell, &o)
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

package natslog

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/dohost/dohost/cluster/nats/internal/natstest"
	"github.com/dohost/dohost/sharedlog"
)

// ownerEnv has the URLs of the servers in the environment of an owner's process.
const ownerEnv = "NATSLOG_TEST_OWNER"

func TestMain(m *testing.M) {
	natstest.Serve()
	err := error(nil)
	if urls := os.Getenv(ownerEnv); urls != "" {
		err = own(context.Background(), urls)
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
		err := o.Append(ctx, n, record(n))
		for errors.Is(err, sharedlog.ErrUnknown) || errors.Is(err, sharedlog.ErrUnavailable) { // as a host does
			if err = sleep(ctx, retryTime); err == nil {
				err = o.Append(ctx, n, record(n))
			}
		}
		if err != nil {
			fmt.Println(err)
			return nil
		}
		fmt.Println(n)
	}
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

package natslog_test

import (
	"context"
	"fmt"
	"log"

	"github.com/nats-io/nats.go"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cluster/nats/natslog"
	"github.com/dohost/dohost/examples/counter"
)

// A host keeps its history on three servers of NATS JetStream. A second process with the same program waits in Acquire,
// and continues with the objects when this one has ended. The example needs servers, so go test only compiles it.
func Example() {
	ctx := context.Background()
	const servers = "nats://10.0.0.1:4222,nats://10.0.0.2:4222,nats://10.0.0.3:4222"
	nc, err := nats.Connect(servers, nats.MaxReconnects(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	system, err := nats.Connect(servers, nats.MaxReconnects(-1), nats.UserCredentials("system.creds"))
	if err != nil {
		log.Fatal(err)
	}
	defer system.Close()

	shared, err := natslog.Open(ctx, nc, "main", &natslog.Options{System: system})
	if err != nil {
		log.Fatal(err)
	}
	lease, err := shared.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	h, err := dohost.Open("data", &dohost.Options{Lease: lease}, counter.Class())
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	fmt.Println(dohost.Call(ctx, counter.Counters.Get(h, "alice"), (*counter.Counter).Add, 1))
}

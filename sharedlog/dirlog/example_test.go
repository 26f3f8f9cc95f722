package dirlog_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/examples/counter"
	"github.com/dohost/dohost/sharedlog/dirlog"
)

// A host on one machine ends, and a host on another machine continues with the objects. Both machines mount the
// directory of the log; each has a data directory of its own, which is empty at first.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "dohost")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for _, machine := range []string{"a", "b"} {
		shared, err := dirlog.Open(filepath.Join(dir, "log"))
		if err != nil {
			log.Fatal(err)
		}
		lease, err := shared.Acquire(ctx) // waits until no other host has the log
		if err != nil {
			log.Fatal(err)
		}
		h, err := dohost.Open(filepath.Join(dir, machine), &dohost.Options{Lease: lease}, counter.Class())
		if err != nil {
			log.Fatal(err)
		}
		n, err := dohost.Call(ctx, counter.Counters.Get(h, "alice"), (*counter.Counter).Add, 2)
		fmt.Println(machine, n, err)
		if err := h.Close(); err != nil { // releases the log
			log.Fatal(err)
		}
	}
	// Output:
	// a 2 <nil>
	// b 4 <nil>
}

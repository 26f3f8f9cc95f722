package sharedlog_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/dohost/dohost/sharedlog"
	"github.com/dohost/dohost/sharedlog/logtest"
)

// Two hosts use a log as package dohost does. When the second host acquires the log, it continues the history, and the
// log refuses the records of the first host. The log here is in memory; a program passes the lease of a log as
// dohost.Options.Lease.
func Example() {
	ctx := context.Background()
	var shared sharedlog.Log = &logtest.Log{}
	first, err := shared.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first.Append(ctx, 1, []byte("one")))

	second, err := shared.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	err = first.Append(ctx, 2, []byte("late"))
	fmt.Println(errors.Is(err, sharedlog.ErrFenced), first.Valid())
	fmt.Println(second.Append(ctx, second.Newest()+1, []byte("two")))
	for record, err := range second.Read(ctx, 1) {
		fmt.Println(string(record), err)
	}
	// Output:
	// <nil>
	// true false
	// <nil>
	// one <nil>
	// two <nil>
}

package cli_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cli"
)

// Counter counts.
type Counter struct{ st *dohost.State }

// Counters is the namespace of Counter objects.
const Counters dohost.Namespace[Counter] = "counter"

// Add adds n, and returns the sum.
func (c *Counter) Add(ctx context.Context, n int) (int, error) {
	sum, _, err := dohost.Get[int](ctx, c.st.Storage(), "sum")
	if err != nil {
		return 0, err
	}
	return sum + n, dohost.Put(ctx, c.st.Storage(), "sum", sum+n)
}

// addCmd is a command of the program's own: it adds to a counter of a store that no host is using.
type addCmd struct {
	Data string `arg:"" help:"Folder of the store."`
	Name string `arg:"" help:"Name of the counter."`
	N    int    `arg:"" help:"Number to add."`
}

// Run is the command.
func (c *addCmd) Run(ctx context.Context, out io.Writer, classes []dohost.Class) error {
	h, err := dohost.Open(c.Data, nil, classes...)
	if err != nil {
		return err
	}
	defer h.Close()
	sum, err := dohost.Call(ctx, Counters.Get(h, c.Name), (*Counter).Add, c.N)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s is %d\n", c.Name, sum)
	return err
}

// A program has the commands of dohost for the objects of its own classes, and a command of its own.
func Example() {
	app := cli.App{
		Classes: []dohost.Class{dohost.Bind(Counters, func(_ context.Context, st *dohost.State) (*Counter, error) {
			return &Counter{st}, nil
		}, nil, dohost.Expose("Add", (*Counter).Add))},
		Commands: []cli.Command{{Name: "add", Help: "Add to a counter.", Value: &addCmd{}}},
	}
	// A program calls app.Main(), which reads the arguments of the process.
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	for _, line := range []string{"add " + dir + " visits 40", "add " + dir + " visits 2", "add " + dir + " visits two"} {
		status := app.Run(context.Background(), strings.Fields(line), os.Stdin, os.Stdout, os.Stdout)
		fmt.Println("exit status", status)
	}
	// Output:
	// visits is 40
	// exit status 0
	// visits is 42
	// exit status 0
	// dohost: <n>: expected a valid 64 bit int but got "two"
	// exit status 2
}

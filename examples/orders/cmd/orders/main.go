// Command orders is a server of orders with all commands of an operator: orders serve, orders show order/7, orders
// resolve. docs/effects.md has a session with it.
package main

import (
	"context"
	"flag"
	"os"

	"example.com/orders"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cli"
)

func main() {
	url := flag.String("bank", "http://127.0.0.1:9797", "URL of the bank")
	noLookup := flag.Bool("no-lookup", false, "do not ask the bank about charges: an operator resolves unknown ones")
	flag.Parse() // the flags before the command
	var s orders.Shop = &httpShop{bank: *url}
	if *noLookup {
		s = struct{ orders.Shop }{s} // hides Find
	}
	app := cli.App{Classes: []dohost.Class{orders.Class(s)}}
	os.Exit(app.Run(context.Background(), flag.Args(), os.Stdin, os.Stdout, os.Stderr))
}

// Command bank is a bank to try the example of orders with: see docs/effects.md.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"os"

	"example.com/orders/bank"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9797", "address of the bank")
	book := flag.String("book", "book.jsonl", "file of all charges")
	noKeys := flag.Bool("no-keys", false, "charge again for a repeated key")
	delay := flag.Duration("delay", 0, "time between a charge and its answer")
	flag.Parse()
	if err := run(*listen, *book, &bank.Bank{Keys: !*noKeys, Delay: *delay, Log: log.New(os.Stdout, "", 0)}); err != nil {
		fmt.Fprintln(os.Stderr, "bank:", err)
		os.Exit(1)
	}
}

func run(listen, book string, b *bank.Bank) error {
	if err := b.Open(book); err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	b.Log.Printf("bank http://%s", l.Addr())
	return b.Serve(l)
}

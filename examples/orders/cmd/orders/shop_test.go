package main

import (
	"errors"
	"net"
	"testing"

	"example.com/orders"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/ledger"
)

// TestRequestIsUnknownOnlyIfItWasSent places orders at a bank that accepts connections and closes them, and at a bank
// that is down.
func TestRequestIsUnknownOnlyIfItWasSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_ = c.Close()
		}
	}()
	h, err := dohost.Open(t.TempDir(), nil, orders.Class(struct{ orders.Shop }{&httpShop{bank: "http://" + l.Addr().String()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	place := func(order string) error {
		_, err := dohost.Call(t.Context(), orders.Orders.Get(h, order), (*orders.Order).Place, 4200)
		return err
	}
	if err := place("sent"); !errors.Is(err, ledger.ErrUnknown) {
		t.Errorf("the bank closes the connection: %v", err)
	}
	_ = l.Close()
	<-closed
	if err := place("not sent"); err == nil || errors.Is(err, ledger.ErrUnknown) {
		t.Errorf("the bank is down: %v", err)
	}
}

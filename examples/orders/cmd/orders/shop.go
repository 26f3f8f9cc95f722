package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"

	"example.com/orders"
	"example.com/orders/bank"

	"github.com/dohost/dohost/ledger"
)

// httpShop is an [orders.Finder]: a bank over HTTP, and a carrier that only writes to the log.
type httpShop struct {
	bank string // its URL
}

// Charge requests a charge.
//
// Errors: [orders.ErrDeclined], and the errors of the connection. Without a connection the request was not sent, so the error
// proves that it had no effect.
func (s *httpShop) Charge(ctx context.Context, key string, of orders.Charge) (string, error) {
	body, err := json.Marshal(bank.Entry{Key: key, Order: of.Order, Cents: of.Cents})
	if err != nil {
		return "", err
	}
	var e bank.Entry
	switch status, err := s.do(ctx, http.MethodPost, "/charges", body, &e); {
	case status == http.StatusPaymentRequired:
		return "", orders.ErrDeclined
	case notSent(err):
		return "", ledger.NoEffect(err)
	case err != nil:
		return "", err
	}
	return e.Receipt, nil
}

// Find returns the receipt of the charge of an order.
func (s *httpShop) Find(ctx context.Context, order string) (receipt string, found bool, err error) {
	var list []bank.Entry
	if _, err := s.do(ctx, http.MethodGet, "/charges?order="+url.QueryEscape(order), nil, &list); err != nil || len(list) == 0 {
		return "", false, err
	}
	return list[0].Receipt, true, nil
}

// Ship writes to the log.
func (s *httpShop) Ship(_ context.Context, order string) error {
	log.Printf("order %s ships", order)
	return nil
}

// notSent reports whether a request has failed before it had a connection.
func notSent(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "dial"
}

// do sends a request. It reads the answer into to, unless the status is not 200.
func (s *httpShop) do(ctx context.Context, method, path string, body []byte, to any) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, method, s.bank+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Close = true // the bank serves one request for each connection
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return res.StatusCode, fmt.Errorf("the bank answers %s", res.Status)
	}
	return res.StatusCode, json.NewDecoder(res.Body).Decode(to)
}

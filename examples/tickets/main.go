// Command tickets answers the messages of durable streams. The messages of the stream tickets/7 go to the object ticket/7, which appends its
// answers to the stream answers/7. The streams are on any server of the Durable Streams protocol. Kill either process: each message is
// taken once and answered once. From the root of the module, in three terminals:
//
//	go run ./cmd/dohost serve --streams --local-webhooks          # the streams
//	go run ./examples/tickets http://127.0.0.1:8787/v1/stream     # the tickets
//	streams=http://127.0.0.1:8787/v1/stream
//	curl -X PUT -H 'Content-Type: application/json' $streams/tickets/7
//	curl -X POST -H 'Content-Type: application/json' -d '"the printer is on fire"' $streams/tickets/7
//	curl $streams/answers/7
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/streams/consumer"
)

func main() {
	o := options{}
	flag.StringVar(&o.addr, "addr", "127.0.0.1:8080", "address of the webhook")
	flag.StringVar(&o.data, "data", "tickets-data", "directory of the tickets")
	flag.BoolVar(&o.pull, "pull", false, "follow a stream of wakes, instead of a webhook")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: tickets [flags] URL\n\nURL is the root of a server of durable streams.\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	o.server = flag.Arg(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, &o); err != nil {
		log.Fatal(err)
	}
}

type options struct {
	addr, data, server string
	pull               bool
}

// subscription returns the subscription of the tickets.
func (o *options) subscription() *consumer.Subscription {
	return &consumer.Subscription{
		Server: o.server, ID: "tickets", Lease: 2 * time.Second,
		Targets: []consumer.Target{consumer.To(Tickets, nameOf, (*Ticket).Storage, (*Ticket).Take)},
	}
}

// config returns the properties of the subscription at the server.
func (o *options) config() *consumer.Config {
	if o.pull {
		return &consumer.Config{Pattern: "tickets/*", WakeStream: "wakes"}
	}
	return &consumer.Config{Pattern: "tickets/*", WebhookURL: "http://" + o.addr + "/wake"}
}

// createEach is the time between two requests that create the subscription, for servers that keep subscriptions in memory.
const createEach = 5 * time.Second

// run serves until ctx has ended.
func run(ctx context.Context, o *options) error {
	s := o.subscription()
	h, err := dohost.Open(o.data, nil, Class(o.server), consumer.Class(s))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /wake", s.Webhook(h, nil))
	mux.HandleFunc("GET /tickets/{name}", func(w http.ResponseWriter, r *http.Request) { show(w, r, h) })
	server := &http.Server{Addr: o.addr, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	closed := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		err := h.Close()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		closed <- errors.Join(err, server.Shutdown(last))
	})
	go subscribe(ctx, h, s, o)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(err, h.Close())
	}
	return <-closed
}

// subscribe keeps the subscription at the server, and works on its wakes if they come by a stream.
func subscribe(ctx context.Context, h *dohost.Host, s *consumer.Subscription, o *options) {
	config := o.config()
	if o.pull {
		go func() {
			_ = s.Pull(ctx, h, &consumer.PullOptions{WakeStream: config.WakeStream, OnError: func(err error) { log.Print(err) }}) // it ends with ctx
		}()
	}
	for ctx.Err() == nil {
		if err := create(ctx, s, config); err != nil {
			log.Print(err)
		}
		_ = dohost.Sleep(ctx, createEach) // the loop ends with ctx
	}
}

func create(ctx context.Context, s *consumer.Subscription, c *consumer.Config) error {
	if c.WakeStream != "" {
		if err := send(ctx, http.MethodPut, s.Server+"/"+c.WakeStream, nil, nil); err != nil {
			return err
		}
	}
	return s.Create(ctx, c)
}

// show lists the messages of a ticket.
func show(w http.ResponseWriter, r *http.Request, h *dohost.Host) {
	list, err := dohost.CallNoArg(r.Context(), Tickets.Get(h, r.PathValue("name")), (*Ticket).List)
	if err != nil {
		h.WriteError(w, err)
		return
	}
	for _, m := range list {
		fmt.Fprintf(w, "%d %s %t\n", m.Number, m.Text, m.Answered)
	}
}

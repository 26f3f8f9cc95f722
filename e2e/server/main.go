//go:build e2e

// Command server is the server of the tests with published clients: a host of agents, on one listener with its
// operator's side. The tests kill it.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cli"
	"github.com/dohost/dohost/pool"
	"github.com/dohost/dohost/web"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "serve" { // dohost serve, with its page
		cli.Main(chatAgentClass(), shopClass(), todoClass(), pool.Class(&pool.Options{MaxRestarts: 1}))
		return
	}
	data := flag.String("data", "", "where the store lives")
	idle := flag.Duration("idle", time.Minute, "evict agents that were idle for this long")
	flag.Parse()
	if err := run(*data, *idle); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves until the process ends. It prints its address, and then the log.
func run(data string, idle time.Duration) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o := &dohost.Options{IdleAfter: idle, Listener: web.LogListener(log)}
	h, err := dohost.Open(data, o, roomClass(), diaryClass(), chatAgentClass())
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	agents, operators := web.Handler(h, &web.Options{Classes: web.Roots(h.Classes()), CORS: true}), web.Admin(h, nil)
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch rest, user := strings.CutPrefix(r.URL.Path, "/user"); {
		case user: // the session selects the user, and so the agent
			r.URL.Path = "/" + strings.TrimPrefix(rest, "/")
			h.ServeObject(w, r, rooms.Get(h, r.URL.Query().Get("who")).ID())
		case strings.HasPrefix(r.URL.Path, "/v1/"):
			operators.ServeHTTP(w, r)
		default:
			agents.ServeHTTP(w, r)
		}
	}))
}

// Command embed serves agents from its own http.Server, at its own URLs. docs/embedding.md explains
// it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/web"
)

// Notes is the namespace of Note objects. A note has the name of its user.
const Notes dohost.Namespace[Note] = "note"

// Note is an agent for each user. Its state is a text.
type Note struct{ *agent.Agent[string] }

// Class is the class of notes.
func Class() dohost.Class {
	return agent.Bind(Notes,
		func(_ context.Context, a *agent.Agent[string]) (*Note, error) { return &Note{a}, nil },
		&agent.Handlers[Note, string]{
			Authorize: authorize,
			OnRequest: func(n *Note, w http.ResponseWriter, r *http.Request) {
				access, _ := dohost.AccessFrom(r.Context())
				fmt.Fprintf(w, "%s of %s for %v", r.URL.Path, n.Name(), access.Identity)
			},
		})
}

// authorize lets each user reach only the note of that user's name.
func authorize(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
	user, ok := userOf(r.Request)
	switch {
	case !ok:
		return dohost.Access{}, dohost.ErrUnauthenticated
	case r.ID.Name != user:
		return dohost.Access{}, dohost.ErrForbidden
	}
	return dohost.Access{Identity: user, Rights: dohost.RightsReadWrite}, nil
}

// userOf replaces the authentication of a real server.
func userOf(r *http.Request) (user string, ok bool) {
	cookie, err := r.Cookie("user")
	if err != nil || cookie.Value == "" {
		return "", false
	}
	return cookie.Value, true
}

// Handler serves the application and its agents.
func Handler(h *dohost.Host) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "home") })

	// A URL of your own: the session selects the agent, which sees the path after /me.
	mux.Handle("/me/", http.StripPrefix("/me", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, ok := userOf(r)
		if !ok {
			http.Error(w, "sign in first", http.StatusUnauthorized)
			return
		}
		h.ServeObject(w, r, Notes.Get(h, user).ID())
	})))

	// The URLs of the Agents SDK, /agents/{class}/{name}, bypass the mux: it redirects paths with an empty
	// segment, and clients send such a path if their basePath begins with a slash.
	agents := web.Handler(h, &web.Options{Classes: []string{string(Notes)}, NoObjects: true})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(strings.TrimLeft(r.URL.Path, "/"), "agents/") {
			agents.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func main() {
	if err := run(context.Background(), "127.0.0.1:8080", "embed-data"); err != nil {
		log.Fatal(err)
	}
}

// run serves until the process is interrupted. Then it closes the host first: the host refuses new requests,
// lets handlers finish, and closes the WebSockets, which the server no longer tracks. After that the server
// sends the last responses.
func run(ctx context.Context, addr, dir string) error {
	h, err := dohost.Open(dir, nil, Class())
	if err != nil {
		return err
	}
	server := &http.Server{Addr: addr, Handler: Handler(h), ReadHeaderTimeout: 10 * time.Second}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	closed := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		err := h.Close()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		closed <- errors.Join(err, server.Shutdown(last))
	})
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(err, h.Close())
	}
	return <-closed
}

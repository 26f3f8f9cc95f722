package web

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"net/url"
	"strconv"
	"strings"

	"github.com/dohost/dohost"
)

// AdminOptions tunes an Admin handler. A nil *AdminOptions, and the zero
// AdminOptions, mean the defaults.
type AdminOptions struct {
	// Metrics answer /metrics. Nil answers not found.
	Metrics *Metrics
	// Ready returns an error if the host should get no more requests. Nil means that it accepts them while its store
	// has not failed.
	Ready func() error
	// Hosts are the host names that the listener answers to, in addition to localhost and IP addresses. With
	// Tokens an empty list means any name: a page that reaches the listener by DNS rebinding has no token.
	Hosts []string
	// Tokens are bearer tokens of operators: a caller must present one of them. If there are none, no caller needs a token. Use other tokens
	// than in [Options].
	Tokens []string
	// Kill ends the process as SIGKILL does, for the page's button. Nil: there is no such button.
	Kill func() error
	// Supervised is set if the process is restarted after a kill. The page displays it.
	Supervised bool
	// Questions are the page's suggestions for agents.
	Questions Questions
	// Logger gets a line, with the remote address, for each request that changes something, exports
	// an object, reads its details, profiles the process or reaches an agent. Nil discards them.
	Logger *slog.Logger
}

// Admin serves the tools of an operator:
//
//	GET    /healthz, /readyz, /metrics, /debug/pprof/
//	GET    /v1/objects?class=C&after=C/N&limit=N   durable objects; live=true: those in memory
//	GET    /v1/objects/{class}/{name}              the state of one
//	GET    .../pins                                why it is in memory
//	GET    .../sockets                             its WebSockets
//	DELETE .../sockets?tag=T                       close them, of one tag or, without it, all
//	GET    .../details?kind=K&can=A&limit=N        its items, listed by its class; also id, state, field=name:value, after
//	POST   .../operate?action=A&kind=K&id=I        cancel, retry, delete or resolve one of those, or post a task
//	POST   .../evict?mode=fence                    fence, restart or crash
//	GET    .../alarm                               and PUT {"at": time}, DELETE
//	POST   .../alarm/revive                        make a parked alarm due now
//	GET    .../export                              and POST .../import
//	POST   .../restore {"record": number}          replace its state by an earlier one; also "time" or "bookmark"
//	GET    /v1/parked?class=C&after=C/N&limit=N    parked alarms
//	POST   /v1/backup {"dir": path}                on the machine of the host
//	POST   /v1/kill                                end the process, with AdminOptions.Kill
//	GET    /                                       the page: conversations with agents, and their objects
//	GET    /agents/{class}/{name}/{rest...}        WebSockets and get-messages, for the page
//
// A list has 1 to 10,000 items, by default 1,000: see limit. A result in an operate request has at most 8 MiB.
//
// Reading under /v1/ neither wakes an object nor keeps it in memory; setting an alarm, operating on items and requests to agents
// wake it. The handler can change any object, so it answers only to localhost, to IP addresses and to
// AdminOptions.Hosts (without Hosts but with Tokens: to any name), and it refuses pages of
// other origins.
func Admin(h *dohost.Host, o *AdminOptions) http.Handler {
	a := &admin{host: h, reads: h}
	if o != nil {
		a.opts = *o
	}
	if a.opts.Logger == nil {
		a.opts.Logger = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", a.health)
	mux.HandleFunc("GET /readyz", a.ready)
	if a.opts.Metrics != nil {
		mux.Handle("GET /metrics", a.opts.Metrics)
	}
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /v1/objects", a.list)
	mux.HandleFunc("GET /v1/parked", a.listParked)
	mux.HandleFunc("POST /v1/backup", a.backup)
	if a.opts.Kill != nil {
		mux.HandleFunc("POST /v1/kill", a.kill)
	}
	p := &public{host: h, opts: (*Options)(nil).withDefaults(), classes: h.Classes()}
	agents := newAgents(p)
	tk := newTickets()
	toAgents := authorize(a.opts.Tokens, tk, p.watch(agents, a.conversations(asOperator(agents))))
	facts := pageFacts{Agents: p.opts.AgentsPrefix, Operator: true, Kill: a.opts.Kill != nil, Supervised: a.opts.Supervised}
	page := newPages(p.classes, facts, a.opts.Questions)
	if len(a.opts.Tokens) > 0 {
		page.tickets = tk
	}
	mux.Handle("GET "+hostPath, page)
	objects := http.HandlerFunc(a.object)
	operators := authorize(a.opts.Tokens, nil, a.audited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/objects/") {
			objects(w, r) // bypasses the mux, which would clean the names in the path
			return
		}
		if _, pattern := mux.Handler(r); pattern == "" {
			noRoute(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})))
	return boundBodies(p.opts.StepTimeout, p.opts.BodyTimeout, a.guard(page.before(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := agents.matches(r); ok {
			toAgents.ServeHTTP(w, r)
		} else {
			operators.ServeHTTP(w, r)
		}
	}))))
}

func noRoute(w http.ResponseWriter, r *http.Request) {
	message := "no route for " + r.Method + " " + r.URL.Path
	if strings.HasPrefix(r.URL.Path, "/objects/") {
		message += ": the listener for clients, --listen, serves objects"
	}
	refuse(w, http.StatusNotFound, "no_route", message)
}

// admin is the operator's handler.
type admin struct {
	host  *dohost.Host // nil for a standby
	reads inspected
	opts  AdminOptions
}

// guard refuses requests that a page of another origin could have sent: with a Host that the listener does not have,
// by DNS rebinding, or with an Origin that is not the listener's.
func (a *admin) guard(next http.Handler) http.Handler {
	names := a.opts.Hosts
	if len(names) == 0 && len(a.opts.Tokens) == 0 {
		names = []string{"localhost"}
	}
	return checkHost(names, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ownOrigin(r) && !isVisit(r) {
			refuse(w, http.StatusForbidden, "foreign_origin", "requests from pages of other origins are not allowed")
			return
		}
		next.ServeHTTP(w, r)
	}))
}

func ownOrigin(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		return err == nil && u.Host == r.Host
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return true
	}
	return false
}

// kill answers POST /v1/kill, and ends the process when the answer is on its way.
func (a *admin) kill(w http.ResponseWriter, _ *http.Request) {
	const answer = "{\"killed\":true}\n"
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.Header().Set("Connection", "close")
	_, _ = io.WriteString(w, answer) // the process ends even if the client has disconnected
	_ = http.NewResponseController(w).Flush()
	if err := a.opts.Kill(); err != nil {
		a.opts.Logger.Error("admin", "op", "kill", "err", err)
	}
}

func (a *admin) health(w http.ResponseWriter, _ *http.Request) {
	if err := a.host.Err(); err != nil {
		refuse(w, http.StatusServiceUnavailable, "store_failed", err.Error())
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (a *admin) ready(w http.ResponseWriter, r *http.Request) {
	if a.opts.Ready != nil {
		if err := a.opts.Ready(); err != nil {
			refuse(w, http.StatusServiceUnavailable, "not_ready", err.Error())
			return
		}
	}
	a.health(w, r)
}

// fail answers with err, as the public side does.
func (a *admin) fail(w http.ResponseWriter, id dohost.ID, op string, err error) {
	if _, ok := errors.AsType[*dohost.Error](err); !ok {
		err = &dohost.Error{Op: op, ID: id, Err: err, Outcome: dohost.OutcomeNotRun}
	}
	b, status := dohost.DescribeError(err)
	b.Write(w, status)
}

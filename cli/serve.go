package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/sharedlog"
	"github.com/dohost/dohost/web"
)

type serveCmd struct {
	Data          string        `env:"DOHOST_DATA" default:"./dohost-data" placeholder:"DIR" help:"Folder of the store (${default})."`
	Ship          string        `env:"DOHOST_SHIP" placeholder:"DIR" help:"Copy each record to this folder, asynchronously, for dohost restore."`
	SharedLog     string        `name:"shared-log" env:"DOHOST_SHARED_LOG" placeholder:"DIR" help:"Keep the history in this folder of a shared file system. If another process owns it, wait until that process has ended."`
	Listen        string        `env:"DOHOST_LISTEN" default:"127.0.0.1:8787" placeholder:"ADDR" help:"Address of the listener for clients (${default}): host:port."`
	Admin         string        `env:"DOHOST_ADMIN" default:"127.0.0.1:8788" placeholder:"ADDR" help:"Address of the admin listener (${default}): host:port, unix:PATH, or off."`
	Origin        []string      `env:"DOHOST_ORIGIN" placeholder:"URL" help:"Origins whose pages may call objects, and connect to them."`
	CORS          bool          `env:"DOHOST_CORS" help:"Let pages of all origins reach agents and streams by HTTP; sockets need --origin."`
	NoObjects     bool          `env:"DOHOST_NO_OBJECTS" help:"Serve agents only, and nothing under /objects/."`
	Streams       bool          `env:"DOHOST_STREAMS" help:"Serve durable streams, for clients of the Durable Streams protocol, under /v1/stream/."`
	StreamURL     string        `name:"stream-url" env:"DOHOST_STREAM_URL" placeholder:"URL" help:"URL of the streams that workers of webhooks call back, if it is not that of the request that creates the subscription."`
	LocalWebhooks bool          `env:"DOHOST_LOCAL_WEBHOOKS" help:"Let subscriptions have webhooks on this machine, by http, for development."`
	NewObjects    int           `env:"DOHOST_NEW_OBJECTS" placeholder:"N" help:"Objects that the clients of one address may create in a minute; 0 for 1000, negative for no limit."`
	Idle          time.Duration `env:"DOHOST_IDLE" placeholder:"TIME" help:"Evict objects that were idle for this long; an eviction may take up to twice as long. Negative for never (70s; with WebSockets 10s)."`
	MaxLive       int           `env:"DOHOST_MAX_LIVE" placeholder:"N" help:"Evict idle objects while more than this many are in memory; 0 for no limit."`
	HeapBudget    uint64        `env:"DOHOST_HEAP_BUDGET" placeholder:"MIB" help:"Evict idle objects while the live heap has more MiB than this; 0 for no limit."`
	TimeScale     float64       `env:"DOHOST_TIME_SCALE" default:"1" placeholder:"X" help:"Divide the platform's times by this: idle eviction, limits of handlers."`
	Grace         time.Duration `env:"DOHOST_GRACE" default:"30s" placeholder:"TIME" help:"Let handlers finish for this long when closing (${default})."`
	Supervise     bool          `env:"DOHOST_SUPERVISE" help:"Run the server in a child process, and restart it when it is killed or fails."`
	Log           string        `env:"DOHOST_LOG" default:"text" placeholder:"FORMAT[:LEVEL]" help:"Format of the log: text, json or off; and its level: debug, info, warn or error (${default})."`

	// Plugins has App.SharedLog, if it is not nil.
	kong.Plugins

	accessFlags
	limitFlags
	chaosFlags
}

// Run is the command.
func (c *serveCmd) Run(ctx context.Context, classes []dohost.Class, served servedClasses, ask questions, std stdio) error {
	supervised := isSupervised()
	if c.Supervise && !supervised {
		if err := c.check(); err != nil {
			return err
		}
		return c.supervise(ctx, std)
	}
	if c.Streams {
		classes = c.withStreams(classes)
	}
	s := &server{std: std, questions: ask, classes: served, supervised: supervised, served: make(chan error, 2)}
	if err := s.open(ctx, c, classes); err != nil {
		return errors.Join(err, s.closeListeners(), s.closeArchive(), s.releaseLog(ctx))
	}
	signals := make(chan os.Signal, 2)
	if supervised {
		signal.Ignore(os.Interrupt)
		signal.Notify(signals, syscall.SIGTERM)
		go readSignals(std.in, signals)
	} else {
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	}
	defer signal.Stop(signals)
	s.start()
	return s.wait(ctx, signals)
}

// check returns an error that names a flag with an invalid value.
func (c *serveCmd) check() error {
	if err := errors.Join(checkFilled("--data", "DOHOST_DATA", c.Data), checkFilled("--listen", "DOHOST_LISTEN", c.Listen),
		checkFilled("--admin", "DOHOST_ADMIN", c.Admin), checkFolder("--data", c.Data), checkShip("--ship", c.Ship, c.Data), c.checkSharedLog(), c.limitFlags.check()); err != nil {
		return err
	}
	if c.MaxLive < 0 || c.HeapBudget > 1<<40 {
		return fmt.Errorf("--max-live %d, --heap-budget %d: want --max-live of 0 or more, and --heap-budget of at most 1099511627776 MiB", c.MaxLive, c.HeapBudget)
	}
	if s := c.TimeScale; s <= 0 || math.IsNaN(s) || math.IsInf(s, 0) {
		return fmt.Errorf("--time-scale %v: want a finite number above 0", s)
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return errors.New("--tls-cert and --tls-key: want both, or neither")
	}
	for _, origin := range c.Origin {
		if strings.ContainsAny(origin, `*?[\`) {
			return fmt.Errorf("--origin %q: want one origin without a pattern, such as https://example.com", origin)
		}
		if err := http.NewCrossOriginProtection().AddTrustedOrigin(origin); err != nil {
			return fmt.Errorf("--origin %q: want an origin such as https://example.com: %w", origin, err)
		}
	}
	return nil
}

// server is a host with its two listeners.
type server struct {
	std       stdio
	questions questions
	// classes are those that the public listener serves.
	classes []string
	// supervised is set if another process restarts this one.
	supervised bool
	cert, key  string // files for TLS; empty: none

	log      *slog.Logger
	host     *dohost.Host
	archive  *dohost.DirArchive // nil if nothing is shipped
	lease    sharedlog.Lease    // nil if the history is in the folder of the store
	public   *http.Server
	admin    *http.Server // nil if there is none
	publicAt net.Listener
	adminAt  net.Listener
	closing  atomic.Bool
	served   chan error // errors of listeners
}

// open opens the listeners, so that a port in use is noticed first, and the host.
func (s *server) open(ctx context.Context, c *serveCmd, classes []dohost.Class) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	if s.log, err = newLogger(c.Log, s.std.err); err != nil {
		return err
	}
	chaos, err := c.chaos()
	if err != nil {
		return err
	}
	allowed, err := c.read(c.Listen)
	if err != nil {
		return err
	}
	for _, path := range []string{c.TokenFile, c.AdminTokenFile} {
		if path != "" && readableByOthers(path) {
			s.log.Warn("every user of this machine can read the token file", "file", path, "want", "mode 0600")
		}
	}
	// Before the listeners: the clients of a waiting process are refused, and turn to the owner.
	if err := s.acquireLog(ctx, c); err != nil {
		return err
	}
	if err := s.listen(ctx, c); err != nil {
		return err
	}
	metrics := web.NewMetrics()
	o := &dohost.Options{
		IdleAfter: c.Idle, MaxLive: c.MaxLive, HeapBudget: c.HeapBudget << 20, Grace: grace(c.Grace), TimeScale: c.TimeScale, Chaos: chaos, Logger: s.log,
		Origins: c.Origin, ErrorTexts: c.errorTexts(c.Listen), Lease: s.lease,
		Listener: dohost.Tee(web.LogListener(s.log), metrics.Listener()),
	}
	c.set(o)
	if err = s.openArchive(c.Ship, o); err != nil {
		return err
	}
	if s.host, err = dohost.Open(c.Data, o, classes...); err != nil {
		return err
	}
	metrics.Watch(s.host)
	if chaos.Active() {
		s.log.Warn("chaos", "seed", chaos.Seed, "rate", chaos.Rate, "mean", chaos.Mean, "places", chaos.Places, "mode", chaos.Mode)
	}
	s.public = s.newServer(web.Handler(s.host, &web.Options{
		Classes: s.classes, NoObjects: c.NoObjects, NewObjects: c.NewObjects,
		Tokens: allowed.tokens, Hosts: allowed.hosts, Origins: c.Origin, CORS: c.CORS, MaxBody: int64(c.MaxBody) * mib, Page: true, Questions: web.Questions(s.questions),
		Logger: s.log, Metrics: metrics, Handlers: c.handlers(s.host), OwnTokens: c.ownTokens(),
	}))
	if s.adminAt != nil {
		if len(allowed.tokens) > 0 && len(allowed.adminTokens) == 0 && !isUnix(c.Admin) {
			s.log.Warn("the admin listener needs no token: every user of this machine is an operator", "flag", "--admin-token-file")
		}
		s.admin = s.newServer(web.Admin(s.host, &web.AdminOptions{
			Metrics: metrics, Ready: s.ready, Logger: s.log, Tokens: allowed.adminTokens, Hosts: c.Host,
			Kill: killProcess, Supervised: s.supervised, Questions: web.Questions(s.questions),
		}))
	}
	return nil
}

// grace translates the flag: zero means no grace here.
func grace(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// listen opens the listeners.
func (s *server) listen(ctx context.Context, c *serveCmd) (err error) {
	if isUnix(c.Listen) {
		return fmt.Errorf("--listen %s: want host:port", c.Listen)
	}
	if err := c.allow("--listen", c.Listen, "--token-file", c.TokenFile); err != nil {
		return err
	}
	if c.TLSCert != "" {
		if _, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey); err != nil {
			return fmt.Errorf("--tls-cert: %w", err)
		}
		s.cert, s.key = c.TLSCert, c.TLSKey
	}
	if s.publicAt, err = listenAt(ctx, c.Listen); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	s.publicAt = &limitedListener{s.publicAt, c.conns()}
	if c.Admin == "off" {
		return nil
	}
	if err := c.allow("--admin", c.Admin, "--admin-token-file", c.AdminTokenFile); err != nil {
		return err
	}
	if s.adminAt, err = listenAt(ctx, c.Admin); err != nil {
		return fmt.Errorf("--admin: %w", err)
	}
	s.adminAt = &limitedListener{s.adminAt, newConnLimit(adminConns, 0)}
	return nil
}

func listenAt(ctx context.Context, addr string) (net.Listener, error) {
	if isUnix(addr) {
		return listenUnix(ctx, unixPath(addr))
	}
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", addr)
}

func (s *server) newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1: WebSockets need it
		ErrorLog:     slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
}

// ready returns an error if the host should get no more requests.
func (s *server) ready() error {
	if s.closing.Load() {
		return dohost.ErrClosed
	}
	return s.host.Err()
}

// start serves, and prints the addresses.
func (s *server) start() {
	go s.serve(s.public, s.publicAt)
	scheme := "http://"
	if s.cert != "" {
		scheme = "https://"
	}
	objects := scheme + s.publicAt.Addr().String()
	fmt.Fprintf(s.std.out, "objects %s\n", objects)
	page := objects
	if s.admin != nil {
		go s.serve(s.admin, s.adminAt)
		admin := unixPrefix + s.adminAt.Addr().String()
		if s.adminAt.Addr().Network() != "unix" {
			admin = scheme + s.adminAt.Addr().String()
			page = admin
		}
		fmt.Fprintf(s.std.out, "admin   %s\n", admin)
	}
	fmt.Fprintf(s.std.out, "page    %s/\n", page)
}

func (s *server) serve(srv *http.Server, l net.Listener) {
	serve := func() error { return srv.Serve(l) }
	if s.cert != "" && l.Addr().Network() != "unix" {
		serve = func() error { return srv.ServeTLS(l, s.cert, s.key) }
	}
	if err := serve(); !errors.Is(err, http.ErrServerClosed) {
		s.served <- err
	}
}

// errSecondSignal is the error after a second signal.
var errSecondSignal = errors.New("ended by a second signal; all acknowledged writes are on the disk")

// maxNamed is the maximum of running activities that the error names.
const maxNamed = 20

// secondSignalError is errSecondSignal, with the names of running activities.
func (s *server) secondSignalError() error {
	var names []string
	for _, z := range s.host.Zombies() {
		names = append(names, z+", fenced")
	}
	for info := range s.host.Live() {
		for _, p := range info.Pins {
			kind, _, _ := strings.Cut(p.Why, " ")
			if slices.Contains([]string{"event", "task", "alarm", "constructor"}, kind) { // Close waits for no other kind
				names = append(names, info.ID.String()+" "+p.Why)
			}
		}
	}
	if len(names) == 0 {
		return errSecondSignal
	}
	slices.Sort(names)
	if more := len(names) - maxNamed; more > 0 {
		names = append(names[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("%w; still running: %s", errSecondSignal, strings.Join(names, "; "))
}

// wait returns when the host has closed, after a signal, a failure or the end of ctx. Until then the listeners stay open,
// for the answers of running requests.
func (s *server) wait(ctx context.Context, signals <-chan os.Signal) error {
	var failure error
	select {
	case sig := <-signals:
		fmt.Fprintf(s.std.err, "dohost: %v: closing; a second signal ends the process immediately\n", sig)
	case <-s.host.Failed():
		failure = errors.New("the store has failed; all acknowledged writes are durable")
	case failure = <-s.served:
	case <-ctx.Done():
	}
	s.closing.Store(true)
	closed := make(chan error, 1)
	go func() { closed <- s.host.Close() }()
	select {
	case err := <-closed:
		return errors.Join(failure, err, s.closeArchive(), s.shutDown(context.WithoutCancel(ctx)))
	case <-signals:
		return s.secondSignalError()
	}
}

// shutdownTime is the time for the last answers after the host has closed.
const shutdownTime = 2 * time.Second

// shutDown sends the last answers and closes the listeners.
func (s *server) shutDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, shutdownTime)
	defer cancel()
	var errs []error
	for _, srv := range []*http.Server{s.public, s.admin} {
		if srv == nil {
			continue
		}
		err := srv.Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = srv.Close() // clients that do not read are cut off
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// closeListeners closes the listeners after a failure of open.
func (s *server) closeListeners() error {
	var errs []error
	for _, l := range []net.Listener{s.publicAt, s.adminAt} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

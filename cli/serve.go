package cli

import (
	"context"
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
	StreamURL     string        `name:"stream-url" env:"DOHOST_STREAM_URL" placeholder:"URL" help:"URL of the streams for the workers of webhooks, if it differs from the URL of the request that creates the subscription."`
	LocalWebhooks bool          `env:"DOHOST_LOCAL_WEBHOOKS" help:"Let subscriptions have webhooks on this machine, by http, for development."`
	NewObjects    int           `env:"DOHOST_NEW_OBJECTS" placeholder:"N" help:"Objects that the clients of one address may create in a minute; 0 for 1000, negative for no limit, as in --new-objects=-1."`
	Idle          time.Duration `env:"DOHOST_IDLE" placeholder:"TIME" help:"Evict objects that were idle for this long; an eviction may take up to twice as long. Negative for never, as in --idle=-1s (70s; with WebSockets 10s)."`
	MaxLive       int           `env:"DOHOST_MAX_LIVE" placeholder:"N" help:"Evict idle objects while more than this many are in memory; 0 for no limit."`
	HeapBudget    uint64        `env:"DOHOST_HEAP_BUDGET" placeholder:"MIB" help:"Evict idle objects while the live heap has more MiB than this; 0 for no limit."`
	TimeScale     float64       `env:"DOHOST_TIME_SCALE" default:"1" placeholder:"X" help:"Divide the platform's times by this: idle eviction, limits of handlers (${default})."`
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
	if err := c.check(); err != nil { // before a shared log waits for servers
		return err
	}
	if c.Supervise && !supervised {
		return c.supervise(ctx, std)
	}
	if c.Streams {
		classes = c.withStreams(classes)
	}
	log, err := newLogger(c.Log, std.err)
	if err != nil {
		return err
	}
	s := &server{std: std, questions: ask, classes: served, supervised: supervised, log: log, served: make(chan error, 2), signalled: make(chan os.Signal, 2)}
	if supervised {
		ctx = s.readSupervisor(ctx)
	}
	cells, err := c.openCells(ctx, s.log)
	if err != nil {
		return err
	}
	if cells != nil {
		return s.serveCells(ctx, c, cells, classes)
	}
	if err := s.open(ctx, c, classes); err != nil {
		return errors.Join(err, s.closeListeners(), s.closeArchive(), s.releaseLog(context.WithoutCancel(ctx)))
	}
	signals := s.signals()
	defer signal.Stop(signals)
	s.start()
	return s.wait(ctx, signals)
}

// signals returns the signals that end the server, which is open. Before that they have their default action: it may wait for long for a
// shared log, or for servers.
func (s *server) signals() chan os.Signal {
	s.opened.Store(true)
	if s.supervised {
		signal.Ignore(os.Interrupt)
		signal.Notify(s.signalled, syscall.SIGTERM)
	} else {
		signal.Notify(s.signalled, os.Interrupt, syscall.SIGTERM)
	}
	return s.signalled
}

// readSupervisor reads the signals of the supervisor. The returned context ends with a signal that arrives before the server is open.
func (s *server) readSupervisor(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go readSignals(s.std.in, func(sig os.Signal) {
		if !s.opened.Load() {
			cancel(fmt.Errorf("%v before the server was open", sig))
			return
		}
		select {
		case s.signalled <- sig:
		default: // two signals are waiting already
		}
	})
	return ctx
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
	// classes are the classes that the public listener serves.
	classes []string
	// supervised is set if another process restarts this one.
	supervised bool
	cert, key  string // files for TLS; empty: none

	log      *slog.Logger
	chaos    dohost.Chaos
	host     *dohost.Host
	archive  *dohost.DirArchive // nil if nothing is shipped
	lease    sharedlog.Lease    // nil if the history is in the folder of the store
	public   *http.Server
	admin    *http.Server // nil if there is none
	publicAt net.Listener
	adminAt  net.Listener
	opened   atomic.Bool
	closing  atomic.Bool
	served   chan error // errors of listeners

	signalled chan os.Signal // signals that end the server once it is open
}

// prepare reads the files that the flags name, and checks the rest of the flags.
func (s *server) prepare(c *serveCmd) (allowed access, err error) {
	if s.chaos, err = c.chaos(); err != nil {
		return allowed, err
	}
	if allowed, err = c.read(c.Listen); err != nil {
		return allowed, err
	}
	for _, path := range []string{c.TokenFile, c.AdminTokenFile} {
		if path != "" && readableByOthers(path) {
			s.log.Warn("every user of this machine can read the token file", "file", path, "want", "mode 0600")
		}
	}
	if s.chaos.Active() {
		s.log.Warn("chaos", "seed", s.chaos.Seed, "rate", s.chaos.Rate, "mean", s.chaos.Mean, "places", s.chaos.Places, "mode", s.chaos.Mode)
	}
	return allowed, nil
}

// open opens the listeners, so that a port in use is noticed first, and the host.
func (s *server) open(ctx context.Context, c *serveCmd, classes []dohost.Class) (err error) {
	allowed, err := s.prepare(c)
	if err != nil {
		return err
	}
	// Before the listeners: the clients of a waiting process are refused, and turn to the owner.
	if err := s.acquireLog(ctx, c); err != nil {
		return err
	}
	if err := s.listen(ctx, c, 0); err != nil {
		return err
	}
	metrics := web.NewMetrics()
	o := s.hostOptions(c, s.log, metrics, s.lease)
	if err = s.openArchive(c.Ship, o); err != nil {
		return err
	}
	if s.host, err = dohost.Open(c.Data, o, classes...); err != nil {
		return err
	}
	metrics.Watch(s.host)
	public := s.publicOptions(c, &allowed, metrics)
	public.Handlers, public.OwnTokens = c.handlers(s.host), c.ownTokens()
	s.public = s.newServer(web.Handler(s.host, public))
	if s.adminAt != nil {
		s.warnAboutAdmin(c, &allowed)
		s.admin = s.newServer(web.Admin(s.host, s.adminOptions(c, &allowed, metrics)))
	}
	return nil
}

// hostOptions returns the options of a host.
func (s *server) hostOptions(c *serveCmd, log *slog.Logger, metrics *web.Metrics, lease sharedlog.Lease) *dohost.Options {
	o := &dohost.Options{
		IdleAfter: c.Idle, MaxLive: c.MaxLive, HeapBudget: c.HeapBudget << 20, Grace: grace(c.Grace), TimeScale: c.TimeScale, Chaos: s.chaos, Logger: log,
		Origins: c.Origin, ErrorTexts: c.errorTexts(c.Listen), Lease: lease,
		Listener: dohost.Tee(web.LogListener(log), metrics.Listener()),
	}
	c.set(o)
	return o
}

// publicOptions returns the options of a handler for clients.
func (s *server) publicOptions(c *serveCmd, allowed *access, metrics *web.Metrics) *web.Options {
	return &web.Options{
		Classes: s.classes, NoObjects: c.NoObjects, NewObjects: c.NewObjects,
		Tokens: allowed.tokens, Hosts: allowed.hosts, Origins: c.Origin, CORS: c.CORS, MaxBody: int64(c.MaxBody) * mib, Page: true, Questions: web.Questions(s.questions),
		Logger: s.log, Metrics: metrics,
	}
}

// adminOptions returns the options of a handler for operators.
func (s *server) adminOptions(c *serveCmd, allowed *access, metrics *web.Metrics) *web.AdminOptions {
	return &web.AdminOptions{
		Metrics: metrics, Ready: s.ready, Logger: s.log, Tokens: allowed.adminTokens, Hosts: c.Host,
		Kill: killProcess, Supervised: s.supervised, Questions: web.Questions(s.questions),
	}
}

func (s *server) warnAboutAdmin(c *serveCmd, allowed *access) {
	if len(allowed.tokens) > 0 && len(allowed.adminTokens) == 0 && !isUnix(c.Admin) {
		s.log.Warn("the admin listener needs no token: every user of this machine is an operator", "flag", "--admin-token-file")
	}
}

// grace translates the flag: zero means no grace here.
func grace(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// ready returns an error if the host should get no more requests.
func (s *server) ready() error {
	if s.closing.Load() {
		return dohost.ErrClosed
	}
	if s.host == nil { // the node has cells
		return nil
	}
	return s.host.Err()
}

// errSecondSignal is the error after a second signal.
var errSecondSignal = errors.New("ended by a second signal; all acknowledged writes are durable")

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
			kind, _, _ := strings.Cut(p.Reason, " ")
			if slices.Contains([]string{"event", "task", "alarm", "constructor"}, kind) { // Close waits for no other kind
				names = append(names, info.ID.String()+" "+p.Reason)
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
		return errors.Join(failure, err, s.closeArchive(), s.shutDown(context.WithoutCancel(ctx), shutdownTime))
	case <-signals:
		return s.secondSignalError()
	}
}

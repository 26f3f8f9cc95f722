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

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
)

type serveCmd struct {
	Data       string        `env:"DOHOST_DATA" default:"./dohost-data" placeholder:"DIR" help:"Where the store lives (${default})."`
	Listen     string        `env:"DOHOST_LISTEN" default:"127.0.0.1:8787" placeholder:"ADDR" help:"Where objects are served (${default})."`
	Admin      string        `env:"DOHOST_ADMIN" default:"127.0.0.1:8788" placeholder:"ADDR" help:"Where operators are (${default}); off for nowhere."`
	Origin     []string      `env:"DOHOST_ORIGIN" placeholder:"URL" help:"Origins whose pages may call objects, and connect to them."`
	CORS       bool          `env:"DOHOST_CORS" help:"Let pages of all origins reach agents by HTTP; sockets need --origin."`
	Idle       time.Duration `env:"DOHOST_IDLE" placeholder:"TIME" help:"Evict objects that were idle for this long, up to twice that; negative for never (70s; with WebSockets 10s)."`
	MaxLive    int           `env:"DOHOST_MAX_LIVE" placeholder:"N" help:"Evict idle objects beyond so many in memory; 0 for no bound."`
	HeapBudget uint64        `env:"DOHOST_HEAP_BUDGET" placeholder:"MIB" help:"Evict idle objects while the live heap has more MiB than this; 0 for no bound."`
	TimeScale  float64       `env:"DOHOST_TIME_SCALE" default:"1" placeholder:"X" help:"Divide the platform's times by this: idle eviction, limits of handlers."`
	Grace      time.Duration `env:"DOHOST_GRACE" default:"30s" placeholder:"TIME" help:"Let handlers finish for this long when closing (${default})."`
	Supervise  bool          `env:"DOHOST_SUPERVISE" help:"Run the server in a process of its own, and start it again when that is killed or fails."`
	Log        string        `env:"DOHOST_LOG" default:"text" placeholder:"FORMAT[:LEVEL]" help:"text, json or off; debug, info, warn or error (${default})."`

	accessFlags
	chaosFlags
}

// Run is the command.
func (c *serveCmd) Run(ctx context.Context, classes []dohost.Class, ask questions, std streams) error {
	supervised := isSupervised()
	if c.Supervise && !supervised {
		if err := c.sensible(); err != nil {
			return err
		}
		return c.supervise(ctx, std)
	}
	s := &server{std: std, ask: ask, supervised: supervised, served: make(chan error, 2)}
	if err := s.open(ctx, c, classes); err != nil {
		return errors.Join(err, s.closeListeners())
	}
	signals := make(chan os.Signal, 2)
	if supervised {
		signal.Ignore(os.Interrupt)
		signal.Notify(signals, syscall.SIGTERM)
		go hearSupervisor(std.in, signals)
	} else {
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	}
	defer signal.Stop(signals)
	s.start()
	return s.wait(ctx, signals)
}

// sensible says which flag has a value that nothing can be made of.
func (c *serveCmd) sensible() error {
	if err := errors.Join(filled("--data", "DOHOST_DATA", c.Data), filled("--listen", "DOHOST_LISTEN", c.Listen),
		filled("--admin", "DOHOST_ADMIN", c.Admin), aFolder("--data", c.Data)); err != nil {
		return err
	}
	if c.MaxLive < 0 || c.HeapBudget > 1<<40 {
		return fmt.Errorf("--max-live %d, --heap-budget %d: want 0, or up to a memory that exists", c.MaxLive, c.HeapBudget)
	}
	if s := c.TimeScale; s <= 0 || math.IsNaN(s) || math.IsInf(s, 0) {
		return fmt.Errorf("--time-scale %v: want a finite number above 0", s)
	}
	for _, origin := range c.Origin {
		if err := http.NewCrossOriginProtection().AddTrustedOrigin(origin); err != nil {
			return fmt.Errorf("--origin %q: want one as https://example.com: %w", origin, err)
		}
	}
	return nil
}

// server is a host with its two listeners.
type server struct {
	std streams
	ask questions
	// supervised says that another process starts this one again.
	supervised bool

	log      *slog.Logger
	host     *dohost.Host
	public   *http.Server
	admin    *http.Server // nil if there is none
	publicAt net.Listener
	adminAt  net.Listener
	closing  atomic.Bool
	served   chan error // why a listener stopped
}

// open opens the listeners, so that a port in use is noticed first, and the host.
func (s *server) open(ctx context.Context, c *serveCmd, classes []dohost.Class) (err error) {
	if err := c.sensible(); err != nil {
		return err
	}
	if s.log, err = newLogger(c.Log, s.std.err); err != nil {
		return err
	}
	chaos, err := c.chaos()
	if err != nil {
		return err
	}
	tokens, err := c.tokens()
	if err != nil {
		return err
	}
	if s.publicAt, err = c.listen(ctx, "--listen", c.Listen); err != nil {
		return err
	}
	if c.Admin != "off" {
		if s.adminAt, err = c.listen(ctx, "--admin", c.Admin); err != nil {
			return err
		}
	}
	metrics := web.NewMetrics()
	s.host, err = dohost.Open(c.Data, &dohost.Options{
		IdleAfter: c.Idle, MaxLive: c.MaxLive, HeapBudget: c.HeapBudget << 20, Grace: grace(c.Grace), TimeScale: c.TimeScale, Chaos: chaos, Logger: s.log,
		Origins:  c.Origin,
		Listener: dohost.Tee(web.LogListener(s.log), metrics.Listener()),
	}, classes...)
	if err != nil {
		return err
	}
	metrics.Watch(s.host)
	if chaos.Active() {
		s.log.Warn("chaos", "seed", chaos.Seed, "rate", chaos.Rate, "mean", chaos.Mean, "places", chaos.Places, "style", chaos.Style)
	}
	s.public = s.newServer(web.Handler(s.host, &web.Options{
		Tokens: tokens, Origins: c.Origin, CORS: c.CORS, Page: true, Questions: web.Questions(s.ask),
		Logger: s.log, Metrics: metrics,
	}))
	if s.adminAt != nil {
		o := &web.AdminOptions{
			Metrics: metrics, Ready: s.ready, Logger: s.log,
			Kill: killProcess, Supervised: s.supervised, Questions: web.Questions(s.ask),
		}
		if !isLoopback(c.Admin) {
			o.Tokens, o.AnyHost = tokens, true
		}
		s.admin = s.newServer(web.Admin(s.host, o))
	}
	return nil
}

// grace translates: zero is no time here.
func grace(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

func (f *accessFlags) listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	if err := f.allow(flag, addr); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return l, nil
}

func (s *server) newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
}

// ready says why the host should get no more requests.
func (s *server) ready() error {
	if s.closing.Load() {
		return dohost.ErrClosed
	}
	return s.host.Err()
}

// start serves, and prints where.
func (s *server) start() {
	go s.serve(s.public, s.publicAt)
	fmt.Fprintf(s.std.out, "objects http://%s\n", s.publicAt.Addr())
	page := s.publicAt.Addr()
	if s.admin != nil {
		go s.serve(s.admin, s.adminAt)
		fmt.Fprintf(s.std.out, "admin   http://%s\n", s.adminAt.Addr())
		page = s.adminAt.Addr()
	}
	fmt.Fprintf(s.std.out, "page    http://%s/\n", page)
}

func (s *server) serve(srv *http.Server, l net.Listener) {
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		s.served <- err
	}
}

// errSecond is the end that a second signal brings.
var errSecond = errors.New("ended by a second signal; what was acknowledged is on the disk")

// maxNamed is how many of those that still run are named.
const maxNamed = 20

// endedBySecond is errSecond, with who was still running.
func (s *server) endedBySecond() error {
	var names []string
	for _, z := range s.host.Zombies() {
		names = append(names, z+", fenced")
	}
	for info := range s.host.Live() {
		for _, p := range info.Pins {
			kind, _, _ := strings.Cut(p.Why, " ")
			if slices.Contains([]string{"event", "task", "alarm", "constructor"}, kind) { // else nobody waits for it
				names = append(names, info.ID.String()+" "+p.Why)
			}
		}
	}
	if len(names) == 0 {
		return errSecond
	}
	slices.Sort(names)
	if more := len(names) - maxNamed; more > 0 {
		names = append(names[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("%w; still running: %s", errSecond, strings.Join(names, "; "))
}

// wait returns when the host has closed: because of a signal, or of a failure. The
// listeners stay open meanwhile, for answers that are under way.
func (s *server) wait(ctx context.Context, signals <-chan os.Signal) error {
	var failure error
	select {
	case sig := <-signals:
		fmt.Fprintf(s.std.err, "dohost: %v: closing; a second signal ends at once\n", sig)
	case <-s.host.Failed():
		failure = errors.New("the store has failed; what was acknowledged is on the disk")
	case failure = <-s.served:
	}
	s.closing.Store(true)
	closed := make(chan error, 1)
	go func() { closed <- s.host.Close() }()
	select {
	case err := <-closed:
		return errors.Join(failure, err, s.shutDown(ctx))
	case <-signals:
		return s.endedBySecond()
	}
}

// shutdownTime is how long answers that are under way have when the host has closed.
const shutdownTime = 2 * time.Second

// shutDown lets the last answers leave and closes the listeners.
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

// closeListeners closes what open has opened before it failed.
func (s *server) closeListeners() error {
	var errs []error
	for _, l := range []net.Listener{s.publicAt, s.adminAt} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
	"github.com/dohost/dohost/web"
)

type standbyCmd struct {
	jsonFlag
	Admin          string `env:"DOHOST_ADMIN" default:"127.0.0.1:8788" placeholder:"ADDR" help:"Address of the standby's admin listener (${default}): host:port on loopback, unix:PATH, or off."`
	AdminTokenFile string `env:"DOHOST_ADMIN_TOKEN_FILE" placeholder:"FILE" help:"Bearer tokens of operators, one a line: a request to --admin must present one. With --status, present the first token of this file."`

	From   string   `placeholder:"DIR" help:"The folder that dohost serve --ship fills; it may be empty or absent at the start."`
	Data   string   `placeholder:"DIR" help:"Folder of the standby: an existing standby, an empty folder, or a path that does not exist yet."`
	Host   []string `env:"DOHOST_HOST" placeholder:"NAME" help:"Host names that the admin listener answers to, in addition to localhost and IP addresses."`
	Log    string   `env:"DOHOST_LOG" default:"text" placeholder:"FORMAT[:LEVEL]" help:"Format of the log: text, json or off; and its level: debug, info, warn or error (${default})."`
	Status bool     `help:"Print the last record and the lag of the standby that answers at --admin, instead of starting a standby."`
}

// Run is the command.
func (c *standbyCmd) Run(ctx context.Context, classes []dohost.Class, std stdio) error {
	if c.Status {
		return c.printStatus(ctx, std.out)
	}
	s, y, err := c.open(ctx, classes, std)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	followed := make(chan error, 1)
	go func() { followed <- y.Follow(ctx) }()
	if s.admin != nil {
		go s.serve(s.admin, s.adminAt)
	}
	select {
	case err = <-followed:
	case err = <-s.served:
		cancel()
		err = errors.Join(err, <-followed)
	}
	st := y.Status()
	err = errors.Join(err, s.shutDown(context.WithoutCancel(ctx), shutdownTime), y.Close()) // the answer to the promotion is sent first
	if st.Promoted && err == nil {
		fmt.Fprintf(std.out, "promoted as of record %d: dohost serve --data %s opens it\n", st.Record, c.Data)
	}
	return err
}

// open opens the listener, so that a port in use is noticed first, and the standby.
func (c *standbyCmd) open(ctx context.Context, classes []dohost.Class, std stdio) (s *server, y *dohost.Standby, err error) {
	if c.From == "" || c.Data == "" || c.JSON {
		return nil, nil, errors.New("want --from and --data, which name folders, without --json; or --status")
	}
	if err := errors.Join(checkFolder("--data", c.Data), checkShip("--from", c.From, c.Data), checkFilled("--admin", "DOHOST_ADMIN", c.Admin)); err != nil {
		return nil, nil, err
	}
	if c.Admin != "off" && !isUnix(c.Admin) && !isLoopback(c.Admin) {
		return nil, nil, fmt.Errorf("--admin %s: want host:port on loopback, unix:PATH, or off", c.Admin)
	}
	tokens, err := readTokens(c.AdminTokenFile)
	if err != nil {
		return nil, nil, fmt.Errorf("--admin-token-file: %w", err)
	}
	log, err := newLogger(c.Log, std.err)
	if err != nil {
		return nil, nil, err
	}
	s = &server{std: std, log: log, served: make(chan error, 1)}
	if c.Admin != "off" {
		if s.adminAt, err = listenAt(ctx, c.Admin); err != nil {
			return nil, nil, fmt.Errorf("--admin: %w", err)
		}
		s.adminAt = &limitedListener{s.adminAt, newConnLimit(adminConns, 0)}
	}
	y, err = dohost.OpenStandby(c.Data, dohost.ReadDirArchive(c.From), &dohost.StandbyOptions{Logger: log}, classes...)
	if err != nil {
		return nil, nil, errors.Join(err, s.closeListeners())
	}
	if st := y.Status(); st.Record > 0 {
		fmt.Fprintf(std.out, "standby of %v, as of record %d\n", st.Identity, st.Record)
	} else {
		fmt.Fprintln(std.out, "standby without a record")
	}
	if s.adminAt != nil {
		s.admin = s.newServer(web.StandbyAdmin(y, &web.AdminOptions{Hosts: c.Host, Tokens: tokens, Logger: log}))
		s.printAdmin("http://")
	}
	return s, y, nil
}

func (c *standbyCmd) printStatus(ctx context.Context, out io.Writer) error {
	st, err := get[adminapi.Standby](ctx, &hostFlags{c.Admin, c.AdminTokenFile}, "GET", "/v1/standby", nil, nil)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(out, st)
	}
	state := "has no record yet"
	if st.Made != nil {
		state = fmt.Sprintf("of %s has record %d, made at %s", printable(st.Store), st.Record, st.Made.Format(time.RFC3339Nano))
	}
	_, err = fmt.Fprintf(out, "the standby %s; it lags by %d records, for %v\n", state, st.Lag, seconds(st.LagSeconds))
	if err == nil && st.Waiting != "" {
		_, err = fmt.Fprintf(out, "it waits: %s\n", printable(st.Waiting))
	}
	return err
}

type promoteCmd struct {
	hostFlags
	jsonFlag
	AsIs bool `name:"as-is" help:"Do not look for records in the folder: the records that only the folder has are lost for the promoted store."`
}

// Run is the command.
func (c *promoteCmd) Run(ctx context.Context, out io.Writer) error {
	query := url.Values{}
	if c.AsIs {
		query.Set("as_is", "true")
	}
	st, err := get[adminapi.Standby](ctx, &c.hostFlags, "POST", "/v1/promote", query, nil)
	if err != nil {
		return err
	}
	made := time.Time{}
	if st.Made != nil {
		made = *st.Made
	}
	return c.print(out, st, "promoted the standby of %s as of record %d, made at %s; its process ends\n", printable(st.Store), st.Record, made.Format(time.RFC3339Nano))
}

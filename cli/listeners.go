package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// listen opens the listeners, of one host or of a node with this number of cells in its cluster.
func (s *server) listen(ctx context.Context, c *serveCmd, cells int) (err error) {
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
	s.publicAt = &limitedListener{s.publicAt, c.conns(cells)}
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

// start serves, and prints the addresses. Cells have no page, so start prints no address for it.
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
		if admin := s.printAdmin(scheme); s.adminAt.Addr().Network() != "unix" {
			page = admin
		}
	}
	if s.host != nil {
		fmt.Fprintf(s.std.out, "page    %s/\n", page)
	}
}

// printAdmin prints the address of the admin listener, and returns it.
func (s *server) printAdmin(scheme string) string {
	admin := unixPrefix + s.adminAt.Addr().String()
	if s.adminAt.Addr().Network() != "unix" {
		admin = scheme + s.adminAt.Addr().String()
	}
	fmt.Fprintf(s.std.out, "admin   %s\n", admin)
	return admin
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

// shutdownTime is the time for the last answers after the host has closed.
const shutdownTime = 2 * time.Second

// shutDown sends the last answers, for at most a time, and closes the listeners.
func (s *server) shutDown(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
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

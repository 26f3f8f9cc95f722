package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/dohost/dohost/sharedlog"
	"github.com/dohost/dohost/sharedlog/dirlog"
)

// checkSharedLog returns an error for a --shared-log that cannot be used with the other flags.
func (c *serveCmd) checkSharedLog() error {
	if c.SharedLog != "" && c.Ship != "" {
		return errors.New("--shared-log and --ship: want one of them; the shared log has each record already")
	}
	return checkShip("--shared-log", c.SharedLog, c.Data)
}

// openLog returns the log that the flags choose, or nil if they choose none.
func (s *server) openLog(ctx context.Context, c *serveCmd) (log sharedlog.Log, err error) {
	for _, p := range c.Plugins {
		if log, err = p.(SharedLog).OpenLog(ctx, s.log); err != nil {
			return nil, err
		}
	}
	switch {
	case log != nil && (c.SharedLog != "" || c.Ship != ""):
		return nil, errors.New("--shared-log or --ship: want neither of them with another shared log")
	case c.SharedLog == "":
		return log, nil
	}
	folder, err := dirlog.Open(c.SharedLog)
	if err != nil {
		return nil, fmt.Errorf("--shared-log: %w", err)
	}
	return folder, nil
}

// acquireLog waits until this process owns the shared log, if there is one.
func (s *server) acquireLog(ctx context.Context, c *serveCmd) error {
	log, err := s.openLog(ctx, c)
	if err != nil || log == nil {
		return err
	}
	s.log.Info("acquiring the shared log; if it has an owner, this process waits until the owner has ended")
	if s.lease, err = log.Acquire(ctx); err != nil {
		return fmt.Errorf("shared log: %w", err)
	}
	s.log.Info("acquired the shared log", "generation", s.lease.Generation(), "records", s.lease.Newest())
	return nil
}

// releaseLog releases the shared log after a failure of open.
func (s *server) releaseLog(ctx context.Context) error {
	if s.lease == nil {
		return nil
	}
	return s.lease.Release(ctx)
}

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/dohost/dohost/sharedlog/dirlog"
)

// checkSharedLog returns an error for a --shared-log that cannot be used with the other flags.
func (c *serveCmd) checkSharedLog() error {
	if c.SharedLog != "" && c.Ship != "" {
		return errors.New("--shared-log and --ship: want one of them; the shared log has each record already")
	}
	return checkShip("--shared-log", c.SharedLog, c.Data)
}

// acquireLog waits until this process owns the shared log, if there is one.
func (s *server) acquireLog(ctx context.Context, dir string) error {
	if dir == "" {
		return nil
	}
	log, err := dirlog.Open(dir)
	if err != nil {
		return fmt.Errorf("--shared-log: %w", err)
	}
	s.log.Info("acquiring the shared log; if it has an owner, this process waits until the owner has ended", "dir", dir)
	if s.lease, err = log.Acquire(ctx); err != nil {
		return fmt.Errorf("--shared-log: %w", err)
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

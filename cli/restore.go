package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// checkShip returns an error for a folder of records, in a flag, that is part of the store, or the other way round.
func checkShip(flag, ship, data string) error {
	if ship == "" {
		return nil
	}
	if err := checkFolder(flag, ship); err != nil {
		return err
	}
	for _, pair := range [][2]string{{ship, data}, {data, ship}} {
		inner, err := filepath.Abs(pair[0])
		if err != nil {
			return err
		}
		outer, err := filepath.Abs(pair[1])
		if err != nil {
			return err
		}
		if inner == outer || strings.HasPrefix(inner, strings.TrimSuffix(outer, string(filepath.Separator))+string(filepath.Separator)) {
			return fmt.Errorf("%s %s and --data %s: want folders that are not within each other", flag, ship, data)
		}
	}
	return nil
}

// openArchive opens the folder of --ship for the host, if there is one.
func (s *server) openArchive(dir string, o *dohost.Options) (err error) {
	if dir == "" {
		return nil
	}
	if s.archive, err = dohost.OpenDirArchive(dir); err != nil {
		return fmt.Errorf("--ship %s: %w", dir, err)
	}
	o.Ship = s.archive
	return nil
}

func (s *server) closeArchive() error {
	if s.archive == nil {
		return nil
	}
	return s.archive.Close()
}

type restoreCmd struct {
	jsonFlag
	From string       `required:"" placeholder:"DIR" help:"The folder that dohost serve --ship has filled; a host may be using it."`
	Data string       `required:"" placeholder:"NEW" help:"The folder of the new store, which must be absent or empty."`
	At   restorePoint `placeholder:"RECORD|TIME" help:"The number of the last record to restore, or a time such as 2006-01-02T15:04:05Z. Without it, the newest record."`
}

// restorePoint is a flag: the number of a record, or a time.
type restorePoint struct{ dohost.RestorePoint }

// UnmarshalText reads a number or a time.
func (p *restorePoint) UnmarshalText(text []byte) error {
	if n, err := strconv.ParseUint(string(text), 10, 64); err == nil && n > 0 {
		p.Record = n
		return nil
	}
	at, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil || at.IsZero() {
		return fmt.Errorf("%q: want the number of a record, or a time such as 2006-01-02T15:04:05Z", text)
	}
	p.Time = at
	return nil
}

// restoredJSON is the output of restore.
type restoredJSON struct {
	Dir    string    `json:"dir"`
	Store  string    `json:"store"`
	Record uint64    `json:"record"`
	Made   time.Time `json:"made"`
}

// Run is the command.
func (c *restoreCmd) Run(ctx context.Context, out io.Writer) error {
	if c.From == "" || c.Data == "" {
		return errors.New("--from and --data: want a folder each")
	}
	if err := checkShip("--from", c.From, c.Data); err != nil {
		return err
	}
	done, err := dohost.RestoreDir(ctx, dohost.ReadDirArchive(c.From), c.Data, c.At.RestorePoint)
	if err != nil {
		return err
	}
	return c.print(out, restoredJSON{c.Data, done.Identity.String(), done.Record, done.Time},
		"restored %s from store %v as of record %d, made at %s\n", c.Data, done.Identity, done.Record, done.Time.Format(time.RFC3339Nano))
}

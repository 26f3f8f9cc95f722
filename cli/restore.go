package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
)

// checkShip returns an error if the folder of a flag, which has records, is within the folder of the store or contains it. It follows symbolic
// links.
func checkShip(flag, ship, data string) error {
	if ship == "" {
		return nil
	}
	if err := checkFolder(flag, ship); err != nil {
		return err
	}
	realShip, err := realPath(ship)
	if err != nil {
		return fmt.Errorf("%s %s: %w", flag, ship, err)
	}
	realData, err := realPath(data)
	if err != nil {
		return fmt.Errorf("--data %s: %w", data, err)
	}
	if isWithin(realShip, realData) || isWithin(realData, realShip) {
		return fmt.Errorf("%s %s and --data %s: want folders that are not within each other; their paths without links are %s and %s",
			flag, ship, data, realShip, realData)
	}
	return nil
}

// checkExists returns an error if the folder of a flag is absent.
func checkExists(flag, path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s %s: there is no such folder", flag, path)
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
	hostFlags
	jsonFlag
	From   string       `placeholder:"DIR" help:"The folder that dohost serve --ship has filled; a host may be using it."`
	Data   string       `placeholder:"NEW" help:"The folder of the new store, which must be absent or empty."`
	Object objectID     `placeholder:"CLASS/NAME" help:"Write the state of this object, as dohost export does, instead of making a store."`
	Over   bool         `help:"With --object, replace the state of the object in the running host, which must ship its records, with its state at --at."`
	Out    string       `short:"o" default:"-" placeholder:"FILE" help:"With --object, the file to create; - is the standard output."`
	At     restorePoint `placeholder:"RECORD|TIME" help:"The number of the last record to restore, its bookmark, or a time such as 2006-01-02T15:04:05Z. Without it, the newest record."`
}

// restorePoint is a flag: the number of a record, a bookmark, or a time.
type restorePoint struct{ dohost.RestorePoint }

// UnmarshalText reads a number, a bookmark or a time.
func (p *restorePoint) UnmarshalText(text []byte) error {
	if n, err := strconv.ParseUint(string(text), 10, 64); err == nil && n > 0 {
		p.Record = n
		return nil
	}
	if _, _, err := dohost.Bookmark(text).Parse(); err == nil {
		p.Bookmark = dohost.Bookmark(text)
		return nil
	}
	at, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil || at.IsZero() {
		return fmt.Errorf("%q: want the number of a record, a bookmark, or a time such as 2006-01-02T15:04:05Z", text)
	}
	p.Time = at
	return nil
}

// restoredJSON is the output of restore.
type restoredJSON struct {
	Dir    string    `json:"dir,omitempty"`
	Object string    `json:"object,omitempty"`
	Out    string    `json:"out,omitempty"`
	Store  string    `json:"store"`
	Record uint64    `json:"record"`
	Made   time.Time `json:"made"`
}

// restoredOverJSON is the output of restore --over.
type restoredOverJSON struct {
	Object string `json:"object"`
	Undo   string `json:"undo"` // the bookmark of the state before
}

func restoredOf(done dohost.Restored) restoredJSON {
	return restoredJSON{Store: done.Identity.String(), Record: done.Record, Made: done.Time}
}

// Run is the command.
func (c *restoreCmd) Run(ctx context.Context, std stdio) error {
	switch {
	case c.Over:
		return c.restoreOver(ctx, std.out)
	case c.From == "":
		return errors.New("--from is missing: want the folder that dohost serve --ship has filled")
	case (c.Data == "") == (c.Object.ID == dohost.ID{}):
		return errors.New("want either --data, a folder for the whole store, or --object, the name of one object")
	case c.Data == "":
		return c.restoreObject(ctx, std)
	case c.Out != "-":
		return errors.New("--out: want it with --object only")
	}
	if err := errors.Join(checkShip("--from", c.From, c.Data), checkExists("--from", c.From)); err != nil {
		return err
	}
	done, err := dohost.RestoreDir(ctx, dohost.ReadDirArchive(c.From), c.Data, c.At.RestorePoint)
	if err != nil {
		return err
	}
	shown := restoredOf(done)
	shown.Dir = c.Data
	return c.print(std.out, shown,
		"restored %s from store %v as of record %d, made at %s\n", c.Data, done.Identity, done.Record, done.Time.Format(time.RFC3339Nano))
}

// restoreOver replaces an object in a running host.
func (c *restoreCmd) restoreOver(ctx context.Context, out io.Writer) error {
	to := c.At.RestorePoint
	switch {
	case c.From != "" || c.Data != "" || c.Out != "-":
		return errors.New("--over: want it without --from, --data and --out: the host reads its own archive")
	case c.Object.ID == dohost.ID{} || to == dohost.RestorePoint{}:
		return errors.New("--over: want --object and --at")
	}
	req := adminapi.RestoreRequest{Bookmark: string(to.Bookmark), Record: to.Record}
	if !to.Time.IsZero() {
		req.Time = &to.Time
	}
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	done, err := get[adminapi.ObjectRestored](ctx, &c.hostFlags, "POST", objectPath(c.Object.ID, "/restore"), nil, bytes.NewReader(body))
	if err != nil {
		return err
	}
	return c.print(out, restoredOverJSON{c.Object.ID.String(), done.Undo}, "restored %v; its state before is at the bookmark %s\n", printable(c.Object.ID.String()), printable(done.Undo))
}

// restoreObject writes the export of one object. An interrupt ends it, so that it removes its files. The report goes to the
// stream of errors if the export goes to the output.
func (c *restoreCmd) restoreObject(parent context.Context, std stdio) (err error) {
	if err := errors.Join(checkFolder("--from", c.From), checkExists("--from", c.From)); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	defer stop()
	var done dohost.Restored
	err = writeExport(c.Out, std.out, func(w io.Writer) (err error) {
		done, err = dohost.ExportArchived(ctx, dohost.ReadDirArchive(c.From), c.Object.ID, c.At.RestorePoint, w)
		return err
	})
	if err != nil {
		return err
	}
	report := std.out
	if c.Out == "-" {
		report = std.err
	}
	shown := restoredOf(done)
	shown.Object, shown.Out = c.Object.ID.String(), c.Out
	return c.print(report, shown, "wrote %v from store %v as of record %d, made at %s\n",
		printable(c.Object.ID.String()), done.Identity, done.Record, done.Time.Format(time.RFC3339Nano))
}

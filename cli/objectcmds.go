package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
)

type closeCmd struct {
	hostFlags
	jsonFlag
	ID  objectID `arg:"" name:"class/name" help:"The object."`
	Tag string   `arg:"" optional:"" help:"Close the WebSockets with this tag, as show --sockets lists it. The tag of an agent's connection is its id."`
	All bool     `help:"Close all WebSockets of the object."`
}

// Run is the command.
func (c *closeCmd) Run(ctx context.Context, out io.Writer) error {
	switch {
	case c.All && c.Tag != "":
		return errors.New("--all and a tag: want one of them")
	case !c.All && c.Tag == "":
		return errors.New("want a tag, as show --sockets lists it, or --all")
	}
	which := url.Values{}
	if !c.All {
		which.Set("tag", c.Tag)
	}
	closed, err := get[adminapi.ClosedSockets](ctx, &c.hostFlags, "DELETE", objectPath(c.ID.ID, "/sockets"), which, nil)
	switch {
	case err != nil:
		return err
	case closed.Closed == 0 && !c.All:
		return fmt.Errorf("%v has no WebSocket with tag %q", printable(c.ID.String()), c.Tag)
	}
	done := actedJSON{Action: "close", Object: c.ID.String(), Kind: "socket", ID: c.Tag, Count: closed.Closed}
	return c.print(out, done, "closed %d WebSockets of %v\n", closed.Closed, printable(c.ID.String()))
}

type evictCmd struct {
	hostFlags
	jsonFlag
	ID   objectID `arg:"" name:"class/name" help:"The object."`
	Mode endMode  `default:"fence" help:"How to end the incarnation: fence and restart keep its commits; crash loses writes that are not on their way to the disk."`
}

// Run is the command.
func (c *evictCmd) Run(ctx context.Context, out io.Writer) error {
	e, err := get[adminapi.Evicted](ctx, &c.hostFlags, "POST", objectPath(c.ID.ID, "/evict"), url.Values{"mode": {c.Mode.String()}}, nil)
	if err != nil {
		return err
	}
	done := actedJSON{Action: "evict", Object: c.ID.String()}
	if !e.Evicted {
		return c.print(out, done, "%v was not in memory\n", printable(c.ID.String()))
	}
	done.Count = 1
	return c.print(out, done, "evicted %v\n", printable(c.ID.String()))
}

type alarmCmd struct {
	Show   alarmShowCmd   `cmd:"" help:"Show when an object's alarm is due."`
	Set    alarmSetCmd    `cmd:"" help:"Set an object's alarm, replacing an earlier one. Wakes the object."`
	Delete alarmDeleteCmd `cmd:"" help:"Remove an object's alarm. Wakes the object."`
	Parked alarmParkedCmd `cmd:"" help:"List parked alarms, which the host no longer delivers."`
	Revive alarmReviveCmd `cmd:"" help:"Make a parked alarm due now, and clear its counts of failures."`
}

type alarmShowCmd struct {
	hostFlags
	jsonFlag
	ID objectID `arg:"" name:"class/name" help:"The object."`
}

// Run is the command.
func (c *alarmShowCmd) Run(ctx context.Context, out io.Writer) error {
	return c.alarm(ctx, c.jsonFlag, out, "GET", c.ID.ID, nil)
}

type alarmSetCmd struct {
	hostFlags
	jsonFlag
	ID objectID `arg:"" name:"class/name" help:"The object."`
	At alarmAt  `arg:"" name:"time" help:"A time such as 2006-01-02T15:04:05Z, or a delay from now such as 10m."`
}

// alarmAt is a time, or a duration from now.
type alarmAt struct{ time.Time }

// UnmarshalText reads a time or a duration.
func (a *alarmAt) UnmarshalText(text []byte) error {
	if d, err := time.ParseDuration(string(text)); err == nil {
		a.Time = time.Now().Add(d)
		return nil
	}
	at, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return fmt.Errorf("time %q: want a time such as 2006-01-02T15:04:05Z, or a delay from now such as 10m", text)
	}
	a.Time = at
	return nil
}

// Run is the command.
func (c *alarmSetCmd) Run(ctx context.Context, out io.Writer) error {
	body, err := json.Marshal(adminapi.Alarm{At: &c.At.Time})
	if err != nil {
		return err
	}
	return c.alarm(ctx, c.jsonFlag, out, "PUT", c.ID.ID, bytes.NewReader(body))
}

type alarmDeleteCmd struct {
	hostFlags
	jsonFlag
	ID objectID `arg:"" name:"class/name" help:"The object."`
}

// Run is the command.
func (c *alarmDeleteCmd) Run(ctx context.Context, out io.Writer) error {
	return c.alarm(ctx, c.jsonFlag, out, "DELETE", c.ID.ID, nil)
}

func (f *hostFlags) alarm(ctx context.Context, j jsonFlag, out io.Writer, method string, id dohost.ID, body io.Reader) error {
	a, err := get[adminapi.Alarm](ctx, f, method, objectPath(id, "/alarm"), nil, body)
	if err != nil {
		return err
	}
	shown := alarmJSON{Object: id.String(), Alarm: a}
	if a.At == nil {
		return j.print(out, shown, "%v has no alarm\n", printable(id.String()))
	}
	return j.print(out, shown, "%v is due at %s\n", printable(id.String()), a.At.Format(time.RFC3339Nano))
}

type exportCmd struct {
	hostFlags
	ID   objectID `arg:"" name:"class/name" help:"The object."`
	Out  string   `short:"o" default:"-" placeholder:"FILE" help:"File to create; - is the standard output."`
	Data string   `placeholder:"DIR" help:"Read the object from this store, which no host may be using."`
}

// Run is the command.
func (c *exportCmd) Run(ctx context.Context, std stdio) error {
	return writeExport(c.Out, std.out, func(w io.Writer) error { return c.export(ctx, w) })
}

// writeExport calls write with out or, unless path is -, with a new file. It removes the file after an error.
func writeExport(path string, out io.Writer, write func(io.Writer) error) error {
	if path == "-" {
		return write(out)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	err = errors.Join(write(f), f.Sync(), f.Close())
	if err != nil {
		err = errors.Join(err, os.Remove(path)) // an incomplete export is useless
	}
	return err
}

func (c *exportCmd) export(ctx context.Context, w io.Writer) error {
	if c.Data != "" {
		if err := checkFolder("--data", c.Data); err != nil {
			return err
		}
		return dohost.ExportDir(ctx, c.Data, c.ID.ID, w)
	}
	res, err := c.request(ctx, "application/octet-stream", "GET", objectPath(c.ID.ID, "/export"), nil, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close() // read to its end
	_, err = io.Copy(w, res.Body)
	return err
}

type importCmd struct {
	hostFlags
	jsonFlag
	ID   objectID `arg:"" name:"class/name" help:"The object to create. It must not exist."`
	File string   `arg:"" optional:"" default:"-" help:"The export; - is the standard input."`
}

// Run is the command.
func (c *importCmd) Run(ctx context.Context, std stdio) error {
	in := io.NopCloser(std.in)
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer f.Close() // nothing was written
		in = f
	}
	if _, err := get[adminapi.Object](ctx, &c.hostFlags, "POST", objectPath(c.ID.ID, "/import"), nil, in); err != nil {
		return err
	}
	done := actedJSON{Action: "import", Object: c.ID.String(), Count: 1}
	return c.print(std.out, done, "imported %v\n", printable(c.ID.String()))
}

type backupCmd struct {
	hostFlags
	jsonFlag
	Dir string `arg:"" help:"The folder to create, on the host's machine. On the file system of the store most files are linked; on another one they are copied, which takes longer."`
}

// Run is the command.
func (c *backupCmd) Run(ctx context.Context, out io.Writer) error {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return err
	}
	body, err := json.Marshal(adminapi.BackupRequest{Dir: dir})
	if err != nil {
		return err
	}
	if _, err := get[adminapi.BackupRequest](ctx, &c.hostFlags, "POST", "/v1/backup", nil, bytes.NewReader(body)); err != nil {
		return err
	}
	return c.print(out, adminapi.BackupRequest{Dir: dir}, "copied to %s\n", dir)
}

type checkCmd struct {
	jsonFlag
	Dir string `arg:"" optional:"" env:"DOHOST_DATA" default:"./dohost-data" help:"The store (${default})."`
}

// Run is the command.
func (c *checkCmd) Run(ctx context.Context, out io.Writer, classes []dohost.Class) error {
	if err := errors.Join(checkFilled("<dir>", "DOHOST_DATA", c.Dir), checkFolder("<dir>", c.Dir)); err != nil {
		return err
	}
	var lost error // of the output
	stats, err := dohost.CheckDir(ctx, c.Dir, func(p dohost.CheckProblem) {
		lost = errors.Join(lost, c.print(out, problemJSON{fmt.Sprint(p)}, "%s\n", printable(fmt.Sprint(p))))
	}, classes...)
	if err := errors.Join(err, lost); err != nil {
		return err
	}
	if err := c.print(out, checked(stats), "store %s fork %08x\n%d objects, %d rows, %d alarms, %d bytes, %d problems\n",
		stats.Store.Store, stats.Store.Fork, stats.Objects, stats.Rows, stats.Alarms, stats.Bytes, stats.Problems); err != nil {
		return err
	}
	if stats.Problems > 0 {
		return fmt.Errorf("%s is not consistent", c.Dir)
	}
	return nil
}

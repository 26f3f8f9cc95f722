package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/dohost/dohost/internal/adminapi"
)

type lsCmd struct {
	hostFlags
	jsonFlag
	Class string `arg:"" optional:"" help:"Only objects of this class."`
	Live  bool   `help:"List the objects in memory instead of those on the disk."`
	Page  int    `hidden:"" default:"1000" help:"Objects per request."`
}

// Run is the command.
func (c *lsCmd) Run(ctx context.Context, std stdio) error {
	query := url.Values{"limit": {strconv.Itoa(c.Page)}}
	if c.Class != "" {
		query.Set("class", c.Class)
	}
	if c.Live {
		query.Set("live", "true")
	}
	var damaged damagedBlocks
	defer func() { damaged.report(std.err, "objects") }()
	for {
		list, err := get[adminapi.ObjectList](ctx, &c.hostFlags, "GET", "/v1/objects", query, nil)
		if err != nil {
			return err
		}
		damaged.add(list.Damaged)
		if err := c.print(std.out, list); err != nil {
			return err
		}
		if list.Next == "" {
			return nil
		}
		query.Set("after", list.Next)
	}
}

// damagedBlocks are the damaged blocks of the disk that a list leaves out.
type damagedBlocks map[string]bool

func (b *damagedBlocks) add(names []string) {
	for _, name := range names {
		if *b == nil {
			*b = damagedBlocks{}
		}
		(*b)[name] = true
	}
}

// report prints the number of blocks, unless it is zero.
func (b *damagedBlocks) report(out io.Writer, left string) {
	if n := len(*b); n > 0 {
		fmt.Fprintf(out, "dohost: %d damaged blocks of the disk were skipped: the %s in them are missing (see dohost check)\n", n, left)
	}
}

func (c *lsCmd) print(out io.Writer, list adminapi.ObjectList) error {
	if c.JSON {
		return printJSON(out, list.Objects...)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, o := range list.Objects {
		switch {
		case c.Live:
			fmt.Fprintf(table, "%s\tage %v\tidle %v\tevents %d\tqueued %d\n", printable(o.ID), seconds(o.Age), seconds(o.Idle), o.Events, o.Queued)
		case o.Live:
			fmt.Fprintf(table, "%s\tlive\n", printable(o.ID))
		default:
			fmt.Fprintf(table, "%s\tcold\n", printable(o.ID))
		}
	}
	return table.Flush()
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
}

type showCmd struct {
	hostFlags
	jsonFlag
	ID      objectID `arg:"" name:"class/name" help:"The object."`
	Sockets bool     `help:"List its WebSockets too."`
	Limit   int      `default:"100" help:"List at most this many items of the object, such as an agent's fibers (${default})."`
}

// Run is the command.
func (c *showCmd) Run(ctx context.Context, out io.Writer) error {
	o, err := get[adminapi.Object](ctx, &c.hostFlags, "GET", objectPath(c.ID.ID, ""), nil, nil)
	if err != nil {
		return err
	}
	shown := shownJSON{Object: o}
	if c.Sockets {
		list, err := get[adminapi.SocketList](ctx, &c.hostFlags, "GET", objectPath(c.ID.ID, "/sockets"), nil, nil)
		if err != nil {
			return err
		}
		shown.SocketList = list.Sockets
	}
	shown.DetailList, err = detailsOf(ctx, &c.hostFlags, c.ID.ID, url.Values{"limit": {strconv.Itoa(c.Limit)}})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(out, shown)
	}
	return printObject(out, shown)
}

// printObject prints an object as a table.
func printObject(out io.Writer, o shownJSON) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "object\t%s\n", printable(o.ID))
	fmt.Fprintf(table, "durable\t%s\n", yesNo(o.Durable))
	fmt.Fprintf(table, "alarm\t%s\n", alarmText(o.Object))
	if o.Err != "" {
		fmt.Fprintf(table, "failure\t%q\n", o.Err)
	}
	fmt.Fprintf(table, "live\t%s\n", yesNo(o.Live))
	if o.Live {
		fmt.Fprintf(table, "epoch\t%s\n", printable(o.Epoch))
		fmt.Fprintf(table, "age\t%v\n", seconds(o.Age))
		fmt.Fprintf(table, "idle\t%v\n", seconds(o.Idle))
		fmt.Fprintf(table, "events\t%d\n", o.Events)
		fmt.Fprintf(table, "queued\t%d\n", o.Queued)
	}
	if o.Sockets > 0 {
		fmt.Fprintf(table, "sockets\t%s\n", socketsText(o.Object))
	}
	for _, p := range o.Pins {
		fmt.Fprintf(table, "pin\t%s\n", pinText(p))
	}
	printSockets(table, o.SocketList)
	printDetails(table, o.DetailList)
	return table.Flush()
}

func socketsText(o adminapi.Object) string {
	if o.Live {
		return strconv.Itoa(o.Sockets)
	}
	return fmt.Sprintf("%d, hibernating", o.Sockets)
}

// printSockets prints WebSockets as rows of a table.
func printSockets(table io.Writer, list []adminapi.Socket) {
	for _, s := range list {
		fmt.Fprintf(table, "socket\t%s since %s", printable(s.State), s.Since.Format(time.RFC3339))
		if s.Waiting > 0 {
			fmt.Fprintf(table, ", %d bytes unsent", s.Waiting)
		}
		for _, tag := range s.Tags {
			fmt.Fprintf(table, " %q", tag)
		}
		fmt.Fprintln(table)
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func alarmText(o adminapi.Object) string {
	switch {
	case o.Parked != nil:
		return "parked: " + parkedText(*o.Parked)
	case o.Alarm == nil:
		return "none"
	case o.Attempt > 0:
		return fmt.Sprintf("%s, after %d failed runs", o.Alarm.Format(time.RFC3339Nano), o.Attempt)
	}
	return o.Alarm.Format(time.RFC3339Nano)
}

func pinText(p adminapi.Pin) string {
	if p.For == 0 {
		return printable(p.Reason)
	}
	return fmt.Sprintf("%s, for %v", printable(p.Reason), seconds(p.For))
}

type pinsCmd struct {
	hostFlags
	jsonFlag
	ID objectID `arg:"" name:"class/name" help:"The object."`
}

// Run is the command.
func (c *pinsCmd) Run(ctx context.Context, out io.Writer) error {
	o, err := get[adminapi.Object](ctx, &c.hostFlags, "GET", objectPath(c.ID.ID, "/pins"), nil, nil)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(out, o.Pins...)
	}
	if len(o.Pins) == 0 {
		_, err = fmt.Fprintf(out, "nothing keeps %s in memory\n", printable(o.ID))
	}
	for _, p := range o.Pins {
		_, err = fmt.Fprintln(out, pinText(p))
	}
	return err
}

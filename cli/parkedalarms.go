package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
)

type alarmParkedCmd struct {
	hostFlags
	jsonFlag
	Class string `arg:"" optional:"" help:"Only alarms of objects of this class."`
	Page  int    `hidden:"" default:"1000" help:"Alarms per request."`
}

// Run is the command.
func (c *alarmParkedCmd) Run(ctx context.Context, std stdio) error {
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	for p, err := range c.parked(ctx, std.err, c.Class, c.Page) {
		if err != nil {
			return errors.Join(table.Flush(), err)
		}
		if c.JSON {
			if err := printJSON(std.out, p); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(table, "%s\t%s\n", printable(p.Object), parkedText(p))
	}
	return table.Flush()
}

// parked requests the parked alarms of a class, or of all classes if class is empty. It prints to
// stderr how many damaged blocks the host has skipped.
func (f *hostFlags) parked(ctx context.Context, stderr io.Writer, class string, page int) iter.Seq2[adminapi.Parked, error] {
	return func(yield func(adminapi.Parked, error) bool) {
		query := url.Values{"limit": {strconv.Itoa(page)}}
		if class != "" {
			query.Set("class", class)
		}
		var damaged damagedBlocks
		defer func() { damaged.report(stderr, "alarms") }()
		for {
			list, err := get[adminapi.ParkedList](ctx, f, "GET", "/v1/parked", query, nil)
			if err != nil {
				yield(adminapi.Parked{}, err)
				return
			}
			damaged.add(list.Damaged)
			for _, p := range list.Parked {
				if !yield(p, nil) {
					return
				}
			}
			if list.Next == "" {
				return
			}
			query.Set("after", list.Next)
		}
	}
}

// parkedText describes a parked alarm in a line.
func parkedText(p adminapi.Parked) string {
	parts := []string{p.Reason, "due " + p.Scheduled.Format(time.RFC3339)}
	for _, count := range []struct {
		n    int
		text string
	}{
		{p.Attempts, "%d failed runs"}, {p.Deaths, "%d processes ended in the handler"}, {p.Lost, "%d processes ended before the handler"},
	} {
		if count.n > 0 {
			parts = append(parts, fmt.Sprintf(count.text, count.n))
		}
	}
	if p.Err != "" {
		parts = append(parts, strconv.Quote(p.Err))
	}
	return strings.Join(parts, ", ")
}

type alarmReviveCmd struct {
	hostFlags
	jsonFlag
	ID    objectID `arg:"" optional:"" name:"class/name" help:"The object."`
	All   bool     `help:"Revive all parked alarms, or with --class those of one class."`
	Class string   `help:"With --all: only alarms of objects of this class."`
}

// Run is the command.
func (c *alarmReviveCmd) Run(ctx context.Context, std stdio) error {
	one := c.ID.ID != dohost.ID{}
	switch {
	case one == c.All:
		return errors.New("want an object, or --all")
	case c.Class != "" && !c.All:
		return errors.New("--class needs --all")
	case one:
		r, err := c.revive(ctx, c.ID.ID)
		if err == nil && !r.Revived {
			err = fmt.Errorf("%v has no parked alarm", printable(c.ID.String()))
		}
		if err == nil {
			did := actedJSON{Action: "revive", Object: c.ID.String(), Kind: "alarm", Count: 1}
			err = c.print(std.out, did, "revived the alarm of %v\n", printable(c.ID.String()))
		}
		return err
	}
	return c.reviveAll(ctx, std)
}

// reviveAll revives alarms until the list cannot be read. It reports the alarms that it could not revive.
func (c *alarmReviveCmd) reviveAll(ctx context.Context, std stdio) error {
	n, failed := 0, []error(nil)
	for p, err := range c.parked(ctx, std.err, c.Class, 1000) {
		if err == nil {
			var id dohost.ID
			var r adminapi.Revived
			if id, err = dohost.ParseID(p.Object); err == nil {
				r, err = c.revive(ctx, id)
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", printable(p.Object), err)
			}
			if r.Revived {
				n++
			}
		}
		if err != nil {
			failed = append(failed, err)
		}
		if ctx.Err() != nil {
			break // each further request fails
		}
	}
	err := c.print(std.out, actedJSON{Action: "revive", Kind: "alarm", Count: n}, "revived %d alarms\n", n)
	return errors.Join(append(failed, err)...)
}

func (c *alarmReviveCmd) revive(ctx context.Context, id dohost.ID) (adminapi.Revived, error) {
	return get[adminapi.Revived](ctx, &c.hostFlags, "POST", objectPath(id, "/alarm/revive"), nil, nil)
}

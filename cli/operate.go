package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
	"github.com/dohost/dohost/ledger"
)

// printDetails prints details of an object as rows of a table.
func printDetails(table io.Writer, list adminapi.DetailList) {
	for _, d := range list.Details {
		fmt.Fprintf(table, "%s\t%s", printable(d.Kind), printable(d.ID))
		for _, s := range []string{d.State, d.Text} {
			if s != "" {
				fmt.Fprintf(table, ", %s", printable(s))
			}
		}
		if d.Fault != "" {
			fmt.Fprintf(table, "; FAULT: %s", printable(d.Fault))
		}
		fmt.Fprintln(table)
	}
	if list.More {
		fmt.Fprintf(table, "more\tuse a larger --limit to list the rest\n")
	}
}

func detailsOf(ctx context.Context, f *hostFlags, id dohost.ID, query url.Values) (adminapi.DetailList, error) {
	return get[adminapi.DetailList](ctx, f, "GET", objectPath(id, "/details"), query, nil)
}

// operateCmd applies an action to details of an object.
type operateCmd struct {
	hostFlags
	jsonFlag
	Object objectID `arg:"" name:"class/name" help:"The object."`
	Kind   string   `arg:"" help:"Kind of the item, as show prints it, such as fiber, schedule, item, dead-letter, rows or task."`
	ID     string   `arg:"" optional:"" help:"Id of the item, as show prints it."`
	All    bool     `help:"Apply the action to all items of that kind that allow it."`
}

type (
	cancelCmd struct{ operateCmd }
	retryCmd  struct{ operateCmd }
	deleteCmd struct{ operateCmd }
)

// Run is the command.
func (c *cancelCmd) Run(ctx context.Context, out io.Writer) error {
	return c.do(ctx, out, dohost.ActionCancel, "cancelled")
}

// Run is the command.
func (c *retryCmd) Run(ctx context.Context, out io.Writer) error {
	return c.do(ctx, out, dohost.ActionRetry, "retried")
}

// Run is the command.
func (c *deleteCmd) Run(ctx context.Context, out io.Writer) error {
	return c.do(ctx, out, dohost.ActionDelete, "deleted")
}

func (c *operateCmd) do(ctx context.Context, out io.Writer, a dohost.Action, doneText string) error {
	switch {
	case c.All && c.ID != "":
		return errors.New("--all and an id: want one of them")
	case !c.All && c.ID == "":
		return fmt.Errorf("want the id of the %s, as show prints it, or --all", c.Kind)
	case !c.All:
		done, err := c.one(ctx, a, c.ID)
		if err == nil && !done {
			err = fmt.Errorf("%v has no %s %s to %s", printable(c.Object.String()), printable(c.Kind), printable(c.ID), a)
		}
		if err == nil {
			did := actedJSON{Action: string(a), Object: c.Object.String(), Kind: c.Kind, ID: c.ID, Count: 1}
			err = c.print(out, did, "%s %s %s of %v\n", doneText, printable(c.Kind), printable(c.ID), printable(c.Object.String()))
		}
		return err
	}
	n, err := c.all(ctx, a)
	if err != nil && n == 0 {
		return err
	}
	items := "items"
	if n == 1 {
		items = "item"
	}
	did := actedJSON{Action: string(a), Object: c.Object.String(), Kind: c.Kind, Count: n}
	return errors.Join(err, c.print(out, did, "%s %d %s of kind %s of %v\n", doneText, n, items, printable(c.Kind), printable(c.Object.String())))
}

func (c *operateCmd) one(ctx context.Context, a dohost.Action, id string) (bool, error) {
	query := url.Values{"action": {string(a)}, "kind": {c.Kind}, "id": {id}}
	o, err := get[adminapi.Operated](ctx, &c.hostFlags, "POST", objectPath(c.Object.ID, "/operate"), query, nil)
	return o.Done, err
}

// all applies the action once to each detail that allows it, and returns the number of successes. It continues after a
// refusal of the object, and returns the first refusal.
func (c *operateCmd) all(ctx context.Context, a dohost.Action) (n int, err error) {
	tried := map[string]bool{}
	var refused error
	for {
		list, err := detailsOf(ctx, &c.hostFlags, c.Object.ID, url.Values{"kind": {c.Kind}, "can": {string(a)}})
		if err != nil {
			return n, err
		}
		before := len(tried)
		for _, d := range list.Details {
			if tried[d.ID] {
				continue
			}
			tried[d.ID] = true
			done, err := c.one(ctx, a, d.ID)
			refusal, ok := errors.AsType[*dohost.ErrorBody](err)
			switch {
			case ok && refusal.Ran == dohost.OutcomeRan.String():
				refused = cmp.Or(refused, fmt.Errorf("%s %s: %w", c.Kind, d.ID, err))
			case err != nil:
				return n, err
			case done:
				n++
			}
		}
		if !list.More || len(tried) == before {
			return n, refused
		}
	}
}

// resolveCmd resolves an operation of package ledger.
type resolveCmd struct {
	hostFlags
	jsonFlag
	Object  objectID `arg:"" name:"class/name" help:"The object."`
	ID      string   `arg:"" help:"Id of the operation, as show prints it."`
	Done    *string  `placeholder:"JSON" xor:"outcome" required:"" help:"The operation took effect, with this result."`
	NotDone bool     `xor:"outcome" required:"" help:"The operation had no effect, and cannot have one later."`
}

// Run is the command.
func (c *resolveCmd) Run(ctx context.Context, out io.Writer) error {
	action, body, text := dohost.ActionNotDone, io.Reader(nil), "not done"
	if c.Done != nil {
		if !json.Valid([]byte(*c.Done)) {
			return fmt.Errorf("--done %s: want JSON, such as '\"receipt 17\"' or null", printable(*c.Done))
		}
		action, body, text = dohost.ActionDone, strings.NewReader(*c.Done), "done"
	}
	query := url.Values{"action": {string(action)}, "kind": {ledger.ResourceKind}, "id": {c.ID}}
	o, err := get[adminapi.Operated](ctx, &c.hostFlags, "POST", objectPath(c.Object.ID, "/operate"), query, body)
	if err == nil && !o.Done {
		err = fmt.Errorf("%v has no operation %s", printable(c.Object.String()), printable(c.ID))
	}
	if err == nil {
		did := actedJSON{Action: "resolve", Object: c.Object.String(), Kind: ledger.ResourceKind, ID: c.ID, Text: text, Count: 1}
		err = c.print(out, did, "operation %s of %v is resolved as %s\n", printable(c.ID), printable(c.Object.String()), text)
	}
	return err
}

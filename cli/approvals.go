package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os/user"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
)

// decidedKinds are the kinds of the items that these commands decide, and loggedKinds the kinds of the entries of audit logs. In both lists the
// first kind is of chat agents, and the second of agents with an inbox.
var (
	decidedKinds = []string{callKind, "budget"}
	loggedKinds  = []string{"approval", "budget-event"}
)

// callKind is the kind of the tool calls of a chat agent.
const callKind = "call"

// approvalsCmd lists the tool calls and the exhausted budgets of an agent that wait for an approval, or its audit log.
type approvalsCmd struct {
	hostFlags
	jsonFlag
	Object objectID `arg:"" name:"class/name" help:"The agent."`
	Log    bool     `help:"List the audit log instead, the newest decision first."`
	Limit  int      `default:"100" help:"List at most this many items of each kind (${default})."`
}

// Run is the command.
func (c *approvalsCmd) Run(ctx context.Context, std stdio) error {
	kinds, can := decidedKinds, dohost.ActionApprove
	if c.Log {
		kinds, can = loggedKinds, ""
	}
	var list adminapi.DetailList
	for _, kind := range kinds {
		query := url.Values{"kind": {kind}, "limit": {strconv.Itoa(c.Limit)}}
		if can != "" {
			query.Set("can", string(can))
		}
		of, err := detailsOf(ctx, &c.hostFlags, c.Object.ID, query)
		if err != nil {
			return err
		}
		list.Details = append(list.Details, of.Details...)
		list.More = list.More || of.More
	}
	if c.JSON {
		if list.More {
			fmt.Fprintln(std.err, "dohost: use a larger --limit to list the rest")
		}
		return printJSON(std.out, list.Details...)
	}
	if len(list.Details) == 0 {
		what := "call and no budget that waits for an approval"
		if c.Log {
			what = "entry in its audit log"
		}
		_, err := fmt.Fprintf(std.out, "%v has no %s\n", printable(c.Object.String()), what)
		return err
	}
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	for _, d := range list.Details {
		fmt.Fprintf(table, "%s\t%s\t%s\n", printable(d.ID), printable(d.State), printable(d.Text))
	}
	if list.More {
		fmt.Fprintf(table, "more\t\tuse a larger --limit to list the rest\n")
	}
	return table.Flush()
}

// decideCmd decides about a call or an exhausted budget that waits for an approval.
type decideCmd struct {
	hostFlags
	jsonFlag
	Object objectID `arg:"" name:"class/name" help:"The agent."`
	Call   string   `arg:"" help:"Id of the call or of the question about a budget, as approvals prints it."`
	Digest string   `help:"Decide only if the call has this digest. Without the flag, the command uses the digest that the call has now."`
	actorFlags
}

// actorFlags are the entries of the audit log about the deciding person.
type actorFlags struct {
	Actor  string `placeholder:"NAME" help:"Name of the deciding person, for the audit log. The default is the name of the user of this process."`
	Reason string `help:"The reason, for the audit log."`
}

// actor returns the name for the audit log. It is empty if the user has no name.
func (f *actorFlags) actor() string {
	if f.Actor != "" {
		return f.Actor
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

type (
	approveCmd struct{ decideCmd }
	denyCmd    struct{ decideCmd }
)

// Run is the command.
func (c *approveCmd) Run(ctx context.Context, out io.Writer) error {
	return c.do(ctx, out, dohost.ActionApprove, "approved")
}

// Run is the command.
func (c *denyCmd) Run(ctx context.Context, out io.Writer) error {
	return c.do(ctx, out, dohost.ActionDeny, "denied")
}

func (c *decideCmd) do(ctx context.Context, out io.Writer, a dohost.Action, doneText string) error {
	item, err := c.item(ctx)
	if err != nil {
		return err
	}
	if c.Digest == "" {
		c.Digest = item.Digest
	}
	query := url.Values{
		"action": {string(a)}, "kind": {item.Kind}, "id": {c.Call}, "digest": {c.Digest}, "actor": {c.actor()}, "reason": {c.Reason},
	}
	o, err := get[adminapi.Operated](ctx, &c.hostFlags, "POST", objectPath(c.Object.ID, "/operate"), query, nil)
	if err == nil && !o.Done {
		err = c.noItem()
	}
	if err == nil {
		did := actedJSON{Action: string(a), Object: c.Object.String(), Kind: item.Kind, ID: c.Call, Text: item.Text, Count: 1}
		err = c.print(out, did, "%s %s %s of %v%s\n", doneText, item.Kind, printable(c.Call), printable(c.Object.String()), printable(": "+item.Text))
	}
	return err
}

// item returns the call or the question with the id of the command. With its digest, the decision applies only to the present input of a call.
func (c *decideCmd) item(ctx context.Context) (item dohost.Resource, err error) {
	var found []dohost.Resource
	for _, kind := range decidedKinds {
		list, err := detailsOf(ctx, &c.hostFlags, c.Object.ID, url.Values{"kind": {kind}})
		if err != nil {
			return item, err
		}
		if i := slices.IndexFunc(list.Details, func(d dohost.Resource) bool { return d.ID == c.Call }); i >= 0 {
			found = append(found, list.Details[i])
		}
	}
	switch len(found) {
	case 0:
		return item, c.noItem()
	case 1:
		return found[0], nil
	}
	return item, fmt.Errorf("%v has a call and a budget with the id %s", printable(c.Object.String()), printable(c.Call))
}

func (c *decideCmd) noItem() error {
	return fmt.Errorf("%v has no call and no budget %s", printable(c.Object.String()), printable(c.Call))
}

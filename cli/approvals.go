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

// The kinds of the items of a chat agent that these commands read.
const (
	callKind     = "call"
	approvalKind = "approval"
)

// approvalsCmd lists the calls of a chat agent that wait for an approval, or its audit log.
type approvalsCmd struct {
	hostFlags
	jsonFlag
	Object objectID `arg:"" name:"class/name" help:"The chat agent."`
	Log    bool     `help:"List the audit log instead, the newest decision first."`
	Limit  int      `default:"100" help:"List at most that many."`
}

// Run is the command.
func (c *approvalsCmd) Run(ctx context.Context, std stdio) error {
	query := url.Values{"kind": {callKind}, "can": {string(dohost.ActionApprove)}, "limit": {strconv.Itoa(c.Limit)}}
	if c.Log {
		query = url.Values{"kind": {approvalKind}, "limit": {strconv.Itoa(c.Limit)}}
	}
	list, err := detailsOf(ctx, &c.hostFlags, c.Object.ID, query)
	if err != nil {
		return err
	}
	if c.JSON {
		if list.More {
			fmt.Fprintln(std.err, "dohost: use a larger --limit to list the rest")
		}
		return printJSON(std.out, list.Details...)
	}
	if len(list.Details) == 0 {
		what := "call that waits for an approval"
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

// decideCmd decides about a call that waits for an approval.
type decideCmd struct {
	hostFlags
	jsonFlag
	Object objectID `arg:"" name:"class/name" help:"The chat agent."`
	Call   string   `arg:"" help:"Id of the call, as approvals prints it."`
	Digest string   `help:"Decide only if the call has this digest. Without the flag, the command uses the digest that the call has now."`
	actorFlags
}

// actorFlags are the facts of the audit log about a person that decides.
type actorFlags struct {
	Actor  string `placeholder:"NAME" help:"The person that decides, for the audit log. The default is the name of the user of this process."`
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
	calls, err := detailsOf(ctx, &c.hostFlags, c.Object.ID, url.Values{"kind": {callKind}})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(calls.Details, func(d dohost.Resource) bool { return d.ID == c.Call })
	if i < 0 { // without the digest, the decision could be about any input
		return fmt.Errorf("%v has no call %s", printable(c.Object.String()), printable(c.Call))
	}
	if c.Digest == "" {
		c.Digest = calls.Details[i].Digest
	}
	query := url.Values{
		"action": {string(a)}, "kind": {callKind}, "id": {c.Call}, "digest": {c.Digest}, "actor": {c.actor()}, "reason": {c.Reason},
	}
	o, err := get[adminapi.Operated](ctx, &c.hostFlags, "POST", objectPath(c.Object.ID, "/operate"), query, nil)
	if err == nil && !o.Done {
		err = fmt.Errorf("%v has no call %s", printable(c.Object.String()), printable(c.Call))
	}
	if err == nil {
		text := calls.Details[i].Text
		did := actedJSON{Action: string(a), Object: c.Object.String(), Kind: callKind, ID: c.Call, Text: text, Count: 1}
		err = c.print(out, did, "%s call %s of %v%s\n", doneText, printable(c.Call), printable(c.Object.String()), printable(": "+text))
	}
	return err
}

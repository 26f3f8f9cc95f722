package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
)

// completeCmd ends a call of a chat agent that another party runs.
type completeCmd struct {
	hostFlags
	jsonFlag
	Object objectID `arg:"" name:"class/name" help:"The chat agent."`
	Call   string   `arg:"" help:"Id or key of the call, as show prints them."`
	Result *string  `placeholder:"JSON" xor:"outcome" required:"" help:"The call took effect, with this result."`
	Failed *string  `placeholder:"TEXT" xor:"outcome" required:"" help:"The call had no effect, and cannot have one later: the model receives this error."`
	actorFlags
}

// Run is the command.
func (c *completeCmd) Run(ctx context.Context, out io.Writer) error {
	action, body, text := dohost.ActionComplete, "", "completed"
	switch {
	case c.Failed != nil && *c.Failed == "":
		return fmt.Errorf("--failed is empty: want the text of an error")
	case c.Failed != nil:
		quoted, err := json.Marshal(*c.Failed)
		if err != nil {
			return err
		}
		action, body, text = dohost.ActionFail, string(quoted), "failed"
	case !json.Valid([]byte(*c.Result)):
		return fmt.Errorf("--result %s: want JSON, such as '\"printed\"' or null", printable(*c.Result))
	default:
		body = *c.Result
	}
	query := url.Values{"action": {string(action)}, "kind": {callKind}, "id": {c.Call}, "actor": {c.actor()}, "reason": {c.Reason}}
	o, err := get[adminapi.Operated](ctx, &c.hostFlags, "POST", objectPath(c.Object.ID, "/operate"), query, strings.NewReader(body))
	if err == nil && !o.Done {
		err = fmt.Errorf("%v has no call %s", printable(c.Object.String()), printable(c.Call))
	}
	if err == nil {
		did := actedJSON{Action: "complete", Object: c.Object.String(), Kind: callKind, ID: c.Call, Text: text, Count: 1}
		err = c.print(out, did, "call %s of %v is recorded as %s\n", printable(c.Call), printable(c.Object.String()), text)
	}
	return err
}

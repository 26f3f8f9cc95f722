package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/agenttool"
	"github.com/dohost/dohost/internal/work"
)

// The kinds of details that operators see of a conversation.
const (
	detailRequest  = "request"
	detailMessage  = "message"
	detailCall     = "call"
	detailApproval = "approval"
	detailSummary  = "summary"
	// detailUsage is the total of the calls of models, and detailModelCall one of them.
	detailUsage     = "usage"
	detailModelCall = "model-call"
)

const (
	// listedRequests is how many ended requests are listed, the newest.
	listedRequests = 20
	// listedMessages is how many messages are listed, the newest.
	listedMessages = 20
	// listedCalls is how many ended calls are listed, the newest.
	listedCalls = 20
	// listedApprovals is how many events of the audit log are listed, the newest.
	listedApprovals = 100
)

// inspect yields the details of a conversation for operators: the open requests and calls, then the newest of the ended
// requests, the last summary, and the newest of the messages, of the ended calls and of the audit log, the newest first, and
// the usage.
func inspect(_ context.Context, v *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
	return func(yield func(dohost.Resource, error) bool) {
		_ = inspectOpen(v, yield) &&
			inspectOpenCalls(v, yield) &&
			newestOf(&replies, v, "ended", listedRequests, all[replyRow], requestDetail, yield) &&
			newestOf(&summaries, v, "", 1, all[summaryRow], summaryDetail, yield) &&
			inspectMessages(v, yield) &&
			newestOf(&callRows, v, "ended", listedCalls, all[callRow], callDetail, yield) &&
			newestOf(&approvals, v, "", listedApprovals, all[approvalRow], approvalDetail, yield) &&
			inspectUsage(v, yield)
	}
}

// all accepts all rows.
func all[T any](*T) bool { return true }

// inspectOpenCalls yields the calls without a result, the oldest first, and reports whether the consumer wants more.
func inspectOpenCalls(v *dohost.Snapshot, yield func(dohost.Resource, error) bool) bool {
	for row, err := range callRows.Scan(v, &dohost.Query[callRow]{Index: "open"}) {
		if err != nil {
			yield(dohost.Resource{}, err)
			return false
		}
		d := callDetail(&row.Value)
		if err := addProgress(v, &row.Value, &d); err != nil {
			d.Fault = err.Error() // operators need the call more than its progress
		}
		if !yield(d, nil) {
			return false
		}
	}
	return true
}

// callDetail returns the detail of a tool call.
func callDetail(r *callRow) dohost.Resource {
	c := r.call()
	d := dohost.Resource{Kind: detailCall, ID: r.ID, State: string(r.State), Digest: c.Digest}
	text := []string{fmt.Sprintf("%q %s", r.Tool, r.Input), "since " + timeText(r.Changed)}
	if r.Approved {
		text = append(text, "approved")
	}
	expires := r.Expires != 0 && (r.State == CallApproval || r.State == CallExternal)
	if expires {
		text = append(text, "expires "+timeText(r.Expires))
	}
	if c.Digest != "" {
		text = append(text, "digest "+c.Digest[:12])
	}
	d.Fields = map[string]string{"tool": r.Tool, "input": r.Input, "since": timeText(r.Changed)}
	if r.External {
		text = append(text, "key "+r.Key)
		d.Fields["key"] = r.Key
	}
	switch {
	case r.Role != "":
		text = append(text, "task of "+r.Asks, "role "+r.Role)
		d.Fields["pool"], d.Fields["role"] = r.Asks, r.Role
	case r.Asks != "":
		text = append(text, "asks "+r.Asks, "request "+agenttool.RequestID(r.Key))
		d.Fields["asks"], d.Fields["request"] = r.Asks, agenttool.RequestID(r.Key)
	}
	if r.Late {
		late := clipText(cmp.Or(r.Failure, r.Output), maxCallInput)
		text = append(text, "late result "+late)
		d.Fields["late"] = late
	}
	d.Text = strings.Join(text, ", ")
	if expires {
		d.Fields["expires"] = timeText(r.Expires)
	}
	switch {
	case r.State == CallApproval:
		d.Can = []dohost.Action{dohost.ActionApprove, dohost.ActionDeny}
	case r.State == CallPending && r.Approved:
		d.Can = []dohost.Action{dohost.ActionDeny}
	case r.External && r.inProgress():
		d.Can = []dohost.Action{dohost.ActionComplete, dohost.ActionFail}
	}
	return d
}

// approvalDetail returns the detail of an event of the audit log.
func approvalDetail(r *approvalRow) dohost.Resource {
	d := dohost.Resource{Kind: detailApproval, ID: fmt.Sprint(r.Number), State: string(r.Action)}
	d.Fields = map[string]string{"call": r.Call, "tool": r.Tool, "time": timeText(r.At)}
	text := []string{fmt.Sprintf("call %s of %q", r.Call, r.Tool), timeText(r.At)}
	for _, f := range []struct{ name, before, text string }{{"actor", "by", r.Actor}, {"reason", "because", r.Reason}} {
		if f.text != "" {
			text = append(text, fmt.Sprintf("%s %q", f.before, f.text))
			d.Fields[f.name] = f.text
		}
	}
	if r.Late {
		text = append(text, "too late")
		d.Fields["late"] = "true"
	}
	d.Text = strings.Join(text, ", ")
	return d
}

// inspectOpen yields the open requests, and reports whether the consumer wants more. The first request is running, or
// is not due yet: see the package's comment.
func inspectOpen(v *dohost.Snapshot, yield func(dohost.Resource, error) bool) bool {
	first := true
	for row, err := range replies.Scan(v, &dohost.Query[replyRow]{Index: "open"}) {
		if err != nil {
			yield(dohost.Resource{}, err)
			return false
		}
		r := &row.Value
		d := requestDetail(r)
		if r.running() {
			n, err := logLength(v, r)
			if err != nil {
				yield(dohost.Resource{}, err)
				return false
			}
			d.Counts["chunks"] = n
			d.Text += fmt.Sprintf(", %d chunks", n)
		} else if first && r.NotBefore == 0 {
			d.Fault = "the request is waiting, but no request is being answered"
		}
		if first = false; !yield(d, nil) {
			return false
		}
	}
	return true
}

// logLength returns the number of chunks in the log of the running reply. Chunks of earlier replies may still be on the
// disk.
func logLength(v *dohost.Snapshot, r *replyRow) (int64, error) {
	for row, err := range chunkRows.Scan(v, &dohost.Query[chunkRow]{Reverse: true}) {
		if err != nil || row.Value.Reply != r.Number || row.Value.Seq < r.From {
			return 0, err
		}
		return int64(row.Value.Seq-r.From) + 1, nil
	}
	return 0, nil
}

// inspectMessages yields the newest messages above the floor, and reports whether the consumer wants more.
func inspectMessages(v *dohost.Snapshot, yield func(dohost.Resource, error) bool) bool {
	var floor uint64
	for row, err := range notes.Scan(v, nil) {
		if err != nil {
			yield(dohost.Resource{}, err)
			return false
		}
		if row.Value.Name == extentNote {
			floor = row.Value.Floor
		}
	}
	kept := func(r *messageRow) bool { return r.Place >= floor }
	return newestOf(&messages.rows, v, "place", listedMessages, kept, messageDetail, yield)
}

// newestOf yields the last n rows of an index, the last one first, up to the first row that is not wanted. It reports
// whether the consumer wants more.
func newestOf[T any](
	of *dohost.Collection[T], v *dohost.Snapshot, index string, n int, wanted func(*T) bool,
	detail func(*T) dohost.Resource, yield func(dohost.Resource, error) bool,
) bool {
	for row, err := range of.Scan(v, &dohost.Query[T]{Index: index, Reverse: true}) {
		switch {
		case err != nil:
			yield(dohost.Resource{}, err)
			return false
		case n == 0 || !wanted(&row.Value):
			return true
		case !yield(detail(&row.Value), nil):
			return false
		}
		n--
	}
	return true
}

// requestDetail returns the detail of a request. Its counts are the cost of its reply: runs counts the attempts, also one
// that ended before it called the handler; recoveries counts the attempts after the first; idle counts the interruptions
// since the last new chunk.
func requestDetail(r *replyRow) dohost.Resource {
	d := dohost.Resource{Kind: detailRequest, ID: r.ID, State: string(r.status())}
	attempts := r.attempts()
	d.Counts = map[string]int64{"runs": int64(attempts), "recoveries": int64(max(0, attempts-1)), "idle": int64(r.Stalls)}
	text := []string{"since " + timeText(r.Created)}
	add := func(ok bool, format string, args ...any) {
		if ok {
			text = append(text, fmt.Sprintf(format, args...))
		}
	}
	add(r.Ended != 0, "ended %s", timeText(r.Ended))
	add(r.NotBefore != 0 && r.State == work.Waiting, "not before %s", timeText(r.NotBefore))
	add(attempts > 0, "%d runs", attempts)
	add(r.Stalls > 1, "the last %d without a new chunk", r.Stalls)
	if r.Asked != nil {
		add(true, "asked by %v", r.Asked.caller())
		d.Fields = map[string]string{"asked by": r.Asked.caller().String(), "request": r.Asked.Request}
	}
	add(r.Continues, "continues message %s", r.Message)
	add(r.Error != "", "%q", strings.ToValidUTF8(r.Error[:min(len(r.Error), 200)], ""))
	d.Text = strings.Join(text, ", ")
	return d
}

func timeText(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// summaryDetail returns the detail of the summaries, given the last one.
func summaryDetail(r *summaryRow) dohost.Resource {
	return dohost.Resource{
		Kind: detailSummary, ID: fmt.Sprint(r.Number), Counts: map[string]int64{"messages": int64(r.Total)},
		Text: fmt.Sprintf("covers %d messages, the last is %s at place %d, since %s", r.Total, r.Last, r.To, timeText(r.Created)),
	}
}

// messageDetail returns the detail of a message: its role and its size.
func messageDetail(r *messageRow) dohost.Resource {
	var m struct {
		Role Role `json:"role"`
	}
	d := dohost.Resource{Kind: detailMessage, ID: r.ID, Counts: map[string]int64{"bytes": int64(len(r.JSON))}}
	if err := json.Unmarshal(r.JSON, &m); err != nil {
		d.Fault = err.Error()
	}
	d.Text = fmt.Sprintf("%s, %d bytes", m.Role, len(r.JSON))
	return d
}

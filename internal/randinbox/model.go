package randinbox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/inbox"
)

// model is the object's content as the programs know it. It is a value in the object's storage.
type model struct {
	Serial  int // of its versions
	Next    int // the number of the last task
	Items   map[string]*inbox.Message
	Calls   []*call             // rows of calls that have begun
	Seen    int                 // the incarnation that has last compared the calls
	End     dohost.Position     // of the feed of the messages, after its last change
	Streams map[string][]string // the words of each generation
}

// shop is the name of the inbox of jobs in the model.
const shop = "shop"

// settings are the settings of an inbox.
type settings struct {
	agent.RowsOptions
	eachSender            bool
	maxMessages, maxBytes int
}

// inboxes are the settings of the inboxes, by the name of the agent. The model uses them, too.
var inboxes = map[string]settings{
	"clerk":   {RowsOptions: agent.RowsOptions{Batch: 3}, maxMessages: 4},
	"cook":    {RowsOptions: agent.RowsOptions{Batch: 2, Retry: dohost.RetryPolicy{MaxAttempts: 3, BaseDelay: 500 * time.Millisecond, MaxDelay: time.Second}}, eachSender: true},
	"planner": {RowsOptions: agent.RowsOptions{Batch: 2, Retry: dohost.RetryPolicy{MaxAttempts: 4}}, maxBytes: 600},
	shop:      {RowsOptions: agent.RowsOptions{Batch: 2, Retry: dohost.RetryPolicy{MaxAttempts: 3, BaseDelay: time.Second}}},
}

// attempts returns how many calls may fail or be interrupted before their rows are parked.
func (s settings) attempts() int { return cmp.Or(s.Retry.MaxAttempts, 5) }

// call is a call that has begun, and not finished its rows.
type call struct {
	ID        string
	Inbox     string
	Keys      []string
	State     agent.RowsState
	Position  string
	Failures  int  // of its cycles
	Since     int  // the last incarnation that may have begun the call without an interruption
	Postponed bool // so that fewer interruptions count than Attempt has
	ParkedIn  int  // the incarnation that parked it, if that is known
	Touched   bool // other code has written its rows during the call: their attempts and groups are not known
}

// job is a row of the inbox of jobs.
type job struct {
	ID      string
	Rank    int // orders the index
	Group   string
	Content string
	Done    bool
}

const openIndex = "open"

var jobs = dohost.Collection[job]{
	Name: "jobs",
	Key:  func(j job) string { return j.ID },
	Indexes: []dohost.Index[job]{{Name: openIndex, Of: func(j job) dohost.Key {
		if j.Done {
			return ""
		}
		return dohost.KeyOf(j.Rank)
	}}},
}

// item returns a job as the model has it.
func (j job) item() *inbox.Message {
	m := &inbox.Message{ID: j.ID, Role: chat.RoleUser, To: shop, From: j.Group, Content: j.Content, Created: time.Unix(int64(j.Rank), 0)}
	if j.Done {
		m.Processed = time.Unix(1, 0)
	}
	return m
}

// isJob reports whether a row of the model is a job.
func isJob(i *inbox.Message) bool { return len(i.ID) == 2 && i.ID[0] == 'j' }

// task is the content of a row, as JSON: the script of the cycles of the row.
type task struct {
	Number int
	Fails  failure `json:",omitempty"`
	Times  int     `json:",omitempty"` // of the failure
	Late   int     `json:",omitempty"` // milliseconds, of the model
	Code   []Instr `json:",omitempty"` // in Generate
}

// failure is the place of a failure in a cycle.
type failure int

const (
	failModel failure = iota
	failGenerate
	failRespond
	failBudget
	failLeft // Respond succeeds, and leaves rows in the index
)

// always is a number of times that is larger than any number of attempts.
const always = 1000

// newTask returns a task that n selects.
func (m *model) newTask(n int, code []Instr) string {
	m.Next++
	t := task{Number: m.Next, Fails: failure(n / 3 % 5), Times: [...]int{0, 0, 0, 1, 2, 0, always, 0}[n%8], Late: n % 5 * 300, Code: code}
	if t.Fails == failBudget && t.Times == always {
		t.Times = 2
	}
	text, err := json.Marshal(t)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// taskOf returns the task of a content; ok is false for other texts.
func taskOf(content string) (t task, ok bool) {
	return t, json.Unmarshal([]byte(content), &t) == nil && t.Number > 0
}

func newModel() *model {
	return &model{Items: map[string]*inbox.Message{}, Streams: map[string][]string{}}
}

// waits reports whether a row is work of an inbox, or is addressed to no agent and waits forever.
func waits(i *inbox.Message) bool {
	return i != nil && i.To != "" && i.Processed.IsZero() && i.InReplyTo == "" && i.Role != chat.RoleAssistant
}

// groupOf names the group of a row: each request has one of its own, and so has each sender of some inboxes. A row that the model does not
// have is in none.
func groupOf(i *inbox.Message) string {
	switch {
	case i == nil:
		return "none"
	case i.Request != "":
		return "request " + i.From + "/" + i.Request
	case inboxes[i.To].eachSender, i.To == shop:
		return "sender " + i.From
	}
	return ""
}

// sorted returns the rows that f selects, by time and key.
func (m *model) sorted(f func(*inbox.Message) bool) []*inbox.Message {
	list := slices.SortedFunc(maps.Values(m.Items), func(a, b *inbox.Message) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return slices.DeleteFunc(list, func(i *inbox.Message) bool { return !f(i) })
}

// pending returns the rows that wait.
func (m *model) pending() []*inbox.Message { return m.sorted(waits) }

// requests returns the requests, also those that are answered.
func (m *model) requests() []*inbox.Message {
	return m.sorted(func(i *inbox.Message) bool { return i.Request != "" })
}

// replyTo returns the reply to a request, or nil.
func (m *model) replyTo(asked *inbox.Message) *inbox.Message {
	for _, i := range m.Items {
		if i.InReplyTo == asked.Request && i.From == asked.To && i.To == asked.From {
			return i
		}
	}
	return nil
}

// callWith returns the call that has a row, or nil.
func (m *model) callWith(of, key string) *call {
	i := slices.IndexFunc(m.Calls, func(c *call) bool { return c.Inbox == of && slices.Contains(c.Keys, key) })
	if i < 0 {
		return nil
	}
	return m.Calls[i]
}

// due returns the rows of an inbox that the next call gets.
func (m *model) due(of string) (keys []string) {
	group := ""
	for _, i := range m.pending() {
		if i.To != of || m.callWith(of, i.ID) != nil || len(keys) == inboxes[of].Batch || len(keys) > 0 && groupOf(i) != group {
			continue
		}
		keys, group = append(keys, i.ID), groupOf(i)
	}
	return keys
}

// history returns the messages of the conversation of an agent for its prompt, the oldest first.
func (m *model) history(of string) (list []*inbox.Message) {
	list = m.sorted(func(i *inbox.Message) bool {
		return !isJob(i) && !waits(i) && (i.To == of && i.InReplyTo == "" || i.From == of && i.Request == "")
	})
	when := func(i *inbox.Message) time.Time {
		if i.Processed.IsZero() {
			return i.Created
		}
		return i.Processed
	}
	answer := func(i *inbox.Message) int {
		if i.Role == chat.RoleAssistant {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b *inbox.Message) int { return cmp.Or(when(a).Compare(when(b)), answer(a)-answer(b)) })
	most, left, from := cmp.Or(inboxes[of].maxMessages, 100), cmp.Or(inboxes[of].maxBytes, 1<<18), len(list)
	for from > 0 && len(list)-from < most && left >= len(list[from-1].Content) {
		from--
		left -= len(list[from].Content)
	}
	return list[from:]
}

// written changes the calls after a write of a row by a program. inCycle reports a program that a cycle runs: its writes make no call
// due.
func (m *model) written(of, key string, inCycle bool, incarnation int) {
	c := m.callWith(of, key)
	switch {
	case c == nil:
		return
	case c.State == agent.RowsRunning:
		c.Touched = true
	case !inCycle && waits(m.Items[key]):
		c.reset(incarnation)
	}
	if !waits(m.Items[key]) {
		c.Keys = slices.DeleteFunc(c.Keys, func(k string) bool { return k == key })
	}
}

// sameGroup returns the rows of a call that have the group of the first one: it begins without the others.
func (m *model) sameGroup(c *call) []string {
	return slices.DeleteFunc(slices.Clone(c.Keys), func(k string) bool { return groupOf(m.Items[k]) != groupOf(m.Items[c.Keys[0]]) })
}

// reset makes rows due as if no call had failed.
func (c *call) reset(incarnation int) {
	c.State, c.Failures, c.Since, c.Postponed = agent.RowsWaiting, 0, incarnation, false
}

func (c *call) String() string {
	return fmt.Sprintf("the call %s of %s with the rows %q (%s, %d failures, touched %t)", c.ID, c.Inbox, c.Keys, c.State, c.Failures, c.Touched)
}

// rowText describes a row.
func rowText(i *inbox.Message) string {
	return fmt.Sprintf("%s: %s %s>%s at %d, processed %d, request %q, reply to %q, generation %t, %s",
		i.ID, i.Role, i.From, i.To, i.Created.UnixNano(), unix(i.Processed), i.Request, i.InReplyTo, i.Generation != "", i.Content)
}

func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

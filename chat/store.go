package chat

import (
	"context"
	"encoding/json"

	"github.com/dohost/dohost"
)

// Status is how far a request has come.
type Status string

// The statuses of a request. The last four are final.
const (
	Queued    Status = "queued"    // others are answered before it
	Running   Status = "running"   // it is being answered, perhaps by an incarnation that has ended
	Completed Status = "completed" // its handler has returned
	Failed    Status = "error"     // its handler has failed, or it was interrupted too often
	Aborted   Status = "aborted"   // by the client, [Cancel], or whoever has cancelled its fiber
	Skipped   Status = "skipped"   // another took its place before it began
)

func (s Status) final() bool { return s != Queued && s != Running }

const (
	// maxRequest bounds what a request has beside messages, in bytes: its row takes nearly twice that,
	// and has to take what becomes of it.
	maxRequest = 1 << 20
	// maxFailure bounds how much of an error's text is kept, in bytes.
	maxFailure = 4 << 10
)

// replyRow is a request, and what has become of it.
type replyRow struct {
	ID        string // the client's
	Number    uint64 // in the order in which they came
	Status    Status
	Continues bool            // goes on in the last message of the assistant
	Conn      string          // id of the connection that has asked; "" for the program
	Body      json.RawMessage // of the request, but for what the wire knows
	Tools     json.RawMessage // of the client
	Users     []string        // ids of the user's messages at the end of what was sent
	Message   string          // of the assistant; set when it begins, or when it is to go on in that alone
	Place     uint64          // of that message
	From      uint64          // number of the first chunk of its log
	Fiber     string
	Runs      runs
	Clients   []string // tools of the server's that a client runs, of those that were called
	Server    []string // calls that the server runs
	Held      []string // calls that its model has made in Answer, which alone runs them
	Begun     []string // calls that Answer was about to run: on the disk before it does
	Allowed   []string // calls of the reply that is being made, for which the stream has no chunk
	Submits   bool     // is a client's submission: see Policy
	Due       int64    // it does not begin before
	Answers   bool     // goes on because something was answered, or the program wants it: else skipped
	Error     string   // why it has failed, for the program and operators
	Public    string   // the same for clients
	Created   int64
	Ended     int64
	Told      bool // the class was told how it has ended
}

var replies = dohost.Collection[replyRow]{
	Name: "dohost.chat.replies",
	Key:  func(r replyRow) string { return r.ID },
	Indexes: []dohost.Index[replyRow]{
		{Name: "fiber", Of: func(r replyRow) dohost.Key { return in(r.Fiber != "", dohost.KeyOf(r.Fiber)) }},
		{Name: "open", Of: func(r replyRow) dohost.Key { return in(!r.Status.final(), dohost.KeyOf(r.Number)) }},
		{Name: "ended", Of: func(r replyRow) dohost.Key { return in(r.Status.final(), dohost.KeyOf(r.Ended)) }},
	},
}

// in is a row's place in an index that has not all rows.
func in(is bool, k dohost.Key) dohost.Key {
	if is {
		return k
	}
	return ""
}

// chunkRow is a chunk of a reply that has not ended.
type chunkRow struct {
	Reply uint64 // its number
	Seq   uint64 // from 0
	JSON  []byte
}

var chunkRows = dohost.Collection[chunkRow]{
	Name: "dohost.chat.chunks",
	Key:  func(r chunkRow) string { return string(dohost.KeyOf(r.Reply) + dohost.KeyOf(r.Seq)) },
	// Numbers are never used again, so there is no row of before.
	Blind: true,
}

// noteRow is something of which a conversation has one.
type noteRow struct {
	Name  string
	Count uint64
	Body  json.RawMessage
	Tools json.RawMessage
	Reply string
	Text  string
	Floor uint64 // see transcript
	Bytes uint64 // of the messages' JSON
	Fiber string // that sweeps
}

// The names of notes.
const (
	requestNote  = "request"  // Body and Tools of the last request
	terminalNote = "terminal" // Reply that has failed, and Text that says why, until another begins
	numberNote   = "number"   // Count of requests
	extentNote   = "extent"   // Count and Bytes of messages, and their Floor
	sweepNote    = "sweep"    // Fiber that was the last to sweep
)

var notes = dohost.Collection[noteRow]{
	Name: "dohost.chat.notes",
	Key:  func(n noteRow) string { return n.Name },
}

func (k *conversation) store() *dohost.Storage { return k.base.Storage() }

func (k *conversation) note(ctx context.Context, name string) (noteRow, error) {
	row, _, err := notes.Get(ctx, k.store(), name)
	return row.Value, err
}

// nextNumber counts requests.
func (k *conversation) nextNumber(ctx context.Context) (uint64, error) {
	n, err := k.note(ctx, numberNote)
	if err != nil {
		return 0, err
	}
	n.Name = numberNote
	n.Count++
	return n.Count, notes.Put(ctx, k.store(), n)
}

// running is the request that is being answered.
func (k *conversation) running(ctx context.Context) (r replyRow, ok bool, err error) {
	open, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "open", Limit: 1})
	if err != nil || len(open) == 0 || open[0].Value.Status != Running {
		return r, false, err
	}
	return open[0].Value, true, nil
}

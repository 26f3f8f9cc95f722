package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/dohost/dohost"
)

// messageRow is a message on the disk.
type messageRow struct {
	ID string
	// Place is where it stands in the conversation. Those that come leave room between them, so that a
	// reply stands behind what it answers, whatever came meanwhile.
	Place uint64
	JSON  []byte
}

// placeStep is the room between places.
const placeStep = 1 << 20

var messages = dohost.Collection[messageRow]{
	Name:    "dohost.chat.messages",
	Key:     func(r messageRow) string { return r.ID },
	Indexes: []dohost.Index[messageRow]{{Name: "place", Of: func(r messageRow) dohost.Key { return dohost.KeyOf(r.Place) }}},
}

func (r *messageRow) message() (m Message, err error) {
	if err = json.Unmarshal(r.JSON, &m); err != nil {
		err = fmt.Errorf("chat: stored message %q: %w", r.ID, err)
	}
	return m, err
}

// Status is how far a request has come.
type Status string

// The statuses of a request. The last four are final.
const (
	Queued    Status = "queued"    // others are answered before it
	Running   Status = "running"   // it is being answered, perhaps by an incarnation that has ended
	Completed Status = "completed" // its handler has returned
	Failed    Status = "error"     // its handler has failed, or it was interrupted too often
	Aborted   Status = "aborted"   // by the client, or [Cancel]
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
	Fiber     string
	Runs      runs
	Clients   []string  // tools of the server's that a client runs, of those that were called
	Consents  []consent // of the client, to calls of the reply that is being made
	Submits   bool      // is a client's submission: see Policy
	Due       int64     // it does not begin before
	Answers   bool      // goes on because something was answered, or the program wants it: else skipped
	Error     string
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
}

// noteRow is something of which a conversation has one.
type noteRow struct {
	Name  string
	Count uint64
	Body  json.RawMessage
	Tools json.RawMessage
	Reply string
	Text  string
}

// The names of notes.
const (
	requestNote  = "request"  // Body and Tools of the last request
	terminalNote = "terminal" // Reply that has failed, and Text that says why, until there is another
	numberNote   = "number"   // Count of requests
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

// transcript is the conversation, as it is on the wire.
func (k *conversation) transcript(ctx context.Context) ([]json.RawMessage, error) {
	all := []json.RawMessage{}
	for row, err := range messages.All(ctx, k.store(), &dohost.Query[messageRow]{Index: "place"}) {
		if err != nil {
			return nil, err
		}
		all = append(all, row.Value.JSON)
	}
	return all, nil
}

// stored are the messages that a query selects.
func (k *conversation) stored(ctx context.Context, q *dohost.Query[messageRow]) ([]Message, error) {
	var all []Message
	for row, err := range messages.All(ctx, k.store(), q) {
		if err != nil {
			return nil, err
		}
		m, err := row.Value.message()
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// newest are the last of the messages that a query selects, in order.
func (k *conversation) newest(ctx context.Context, q dohost.Query[messageRow]) ([]Message, error) {
	q.Index, q.Reverse = "place", true
	all, err := k.stored(ctx, &q)
	slices.Reverse(all)
	return all, err
}

// put stores a message, if it is not there as it is. A place of 0 is the one it has, or one at the end.
func (k *conversation) put(ctx context.Context, m Message, place uint64) error {
	old, _, err := messages.Get(ctx, k.store(), m.ID)
	if err != nil {
		return err
	}
	return k.putOver(ctx, old.Value, m, place)
}

// putOver is put of a message that is there as old, if that has a place.
func (k *conversation) putOver(ctx context.Context, old messageRow, m Message, place uint64) (err error) {
	if err := m.check(); err != nil {
		return err
	}
	m = sanitize(m)
	if k.class.sanitize != nil {
		id := m.ID
		m = k.class.sanitize(k.owner, m)
		if err := m.check(); err != nil {
			return fmt.Errorf("chat: Sanitize of message %q: %w", id, err)
		}
		if m.ID != id {
			return fmt.Errorf("chat: Sanitize of message %q makes it %q", id, m.ID)
		}
	}
	m, ok := guard(m)
	if !ok {
		return &dohost.LimitError{What: "message", Size: sizeOf(&m), Limit: maxMessage}
	}
	row := messageRow{ID: m.ID, Place: place, JSON: mustEncode(m)}
	if place == 0 {
		row.Place = old.Place
	}
	if row.Place == 0 {
		if row.Place, err = k.endPlace(ctx); err != nil {
			return err
		}
	}
	if old.Place == row.Place && string(old.JSON) == string(row.JSON) {
		return nil
	}
	return messages.Put(ctx, k.store(), row)
}

// trim forgets the oldest messages beyond those that are kept.
func (k *conversation) trim(ctx context.Context) error {
	most := k.class.options.MaxMessages
	if most == 0 {
		return nil
	}
	n, err := messages.Count(ctx, k.store(), &dohost.Query[messageRow]{Index: "place"})
	if err != nil || n <= most {
		return err
	}
	old, err := messages.List(ctx, k.store(), &dohost.Query[messageRow]{Index: "place", Limit: n - most})
	for _, m := range old {
		if err == nil {
			_, err = messages.Delete(ctx, k.store(), m.Key)
		}
	}
	return err
}

// endPlace is behind all others.
func (k *conversation) endPlace(ctx context.Context) (uint64, error) {
	last, err := messages.List(ctx, k.store(), &dohost.Query[messageRow]{Index: "place", Reverse: true, Limit: 1})
	if err != nil || len(last) == 0 {
		return placeStep, err
	}
	return last[0].Value.Place + placeStep - last[0].Value.Place%placeStep, nil
}

// placeBehind is where the reply to some messages stands: behind the last of them, and behind other
// replies to it.
func (k *conversation) placeBehind(ctx context.Context, users []string) (uint64, error) {
	if len(users) == 0 {
		return k.endPlace(ctx)
	}
	of, ok, err := messages.Get(ctx, k.store(), users[len(users)-1])
	if err != nil {
		return 0, err
	}
	if !ok {
		return k.endPlace(ctx)
	}
	next := of.Value.Place + placeStep - of.Value.Place%placeStep
	before, err := messages.List(ctx, k.store(), &dohost.Query[messageRow]{
		Index: "place", Start: dohost.KeyOf(of.Value.Place), End: dohost.KeyOf(next), Reverse: true, Limit: 1,
	})
	if err != nil || len(before) == 0 {
		return of.Value.Place + 1, err
	}
	return before[0].Value.Place + 1, nil
}

// keepEnded is for how long a request that has ended is known.
const keepEnded = 10 * time.Minute

// sweep forgets requests that have ended long ago.
func (k *conversation) sweep(ctx context.Context, now time.Time) error {
	old, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{
		Index: "ended", End: dohost.KeyOf(now.Add(-keepEnded).UnixMilli()), Limit: 100,
		Where: func(r replyRow) bool { return r.Told },
	})
	for _, r := range old {
		if err == nil {
			_, err = replies.Delete(ctx, k.store(), r.Key)
		}
	}
	return err
}

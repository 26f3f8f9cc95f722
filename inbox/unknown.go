package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// A message that waits for a name that no inbox of the class takes has a record. Invariants:
//
//   - A name is known if an inbox of the class takes the rows of the collection to it, or a function of Elsewhere knows it. The class has one
//     hook for all its inboxes, which knows all of them.
//   - The batch that puts a message to an unknown name into the index "pending" inserts the record, and the batch that takes it out deletes the
//     record: a change of To, a response of a program, or a deletion. The key of the record is a function of the place of the message in the
//     index, so the hook finds the record without the former message. The message itself does not change.
//   - An incarnation inserts no records of names that inboxes take, since its class does not change. So a write of a message to such a
//     name reads and writes no record. When an object wakes, the batch of the constructor deletes the records of names that have
//     become known, before any message is answered: at most 1,000 records. Later wakes delete the others.
//   - A record is reported once, in the batch that inserts it.
//
// A message that has waited since a version of the class with an agent of that name gets its record with its next write.

// maxSwept bounds the records, and the names, that an object looks at when it wakes.
const maxSwept = 1000

// maxUnknownName bounds the name in a record, in bytes.
const maxUnknownName = 256

// unknownRow is the record of a message.
type unknownRow struct {
	Of         string // the key
	Collection string
	Row        string // the key of the message
	Name       string // its To; truncated to maxUnknownName
	Since      int64  // in ms since 1970
}

var unknownRows = dohost.Collection[unknownRow]{
	Name: "dohost.inbox.unknown",
	Key:  func(r unknownRow) string { return r.Of },
}

// classPart is a part of the inboxes of a class: an inbox, or a function of Elsewhere.
type classPart struct {
	collection, index string
	prefix            dohost.Key                  // of the rows that the inbox takes
	messages          *dohost.Collection[Message] // nil for rows of another type
	elsewhere         func(name string) bool      // nil for an inbox
}

// sharedName is the name of the shared extension.
const sharedName = "the inboxes"

// shared returns the entry that adds a part to the inboxes of a class.
func shared[O any](part classPart) agent.Entry[O] {
	return agent.ExtendShared(sharedName, part, func(parts []classPart) agent.Extension[O] {
		u := unknownNames{parts: parts, messages: map[string]*dohost.Collection[Message]{}}
		for _, p := range parts {
			if p.messages != nil {
				u.messages[p.collection] = p.messages
			}
		}
		return agent.Extension[O]{
			Entries: []agent.Entry[O]{wakeFiber[O](), endWaitsFiber[O]()}, Wake: u.wake, Inspect: u.inspect,
			RowWritten: func(ctx context.Context, of agent.Handle, w *dohost.RowWrite) error {
				return errors.Join(finishWritten(ctx, of, w), u.rowWritten(ctx, of, w))
			},
			RowsParked: finishParked,
		}
	})
}

// Elsewhere declares names that no agent of the class has: their messages are answered elsewhere, for example by a person, by another object, or by
// an [agent.OnRows] of the program. Such messages are kept, but neither recorded as [Unknown] nor reported. The declaration applies to all
// collections of the class.
//
// is must be safe for concurrent use, and depend on the name alone. Open returns an error if it is nil.
func Elsewhere[O any](is func(name string) bool) agent.Entry[O] {
	if is == nil {
		return agent.Extend(agent.Extension[O]{Err: errors.New("inbox: Elsewhere without a function")})
	}
	return shared[O](classPart{elsewhere: is})
}

// UnknownTarget is a waiting message to a name that no agent of the class has.
type UnknownTarget struct {
	Collection string    // the name of the collection
	Key        string    // the key of the message
	To         string    // the name; at most 256 bytes of it
	Since      time.Time // the time of the write that the object recorded
	// Cursor continues a list after the message.
	Cursor dohost.Cursor
}

// Unknown returns messages that wait for names that no agent of the class has, ordered by the collection, the name and the key. after is
// empty, or the Cursor of the last message of the page before. limit is 1 to 100; zero means 50. s is the storage of the object with the inboxes.
//
// The object records such a message when it is written, reports it as "inbox:unknown", and keeps it: another object, the program, or an agent in
// a later version of the class may answer it. Messages to names that [Elsewhere] knows have no record.
//
// Errors: [dohost.ErrMisuse] for a limit that is out of range; the errors of the collection.
func Unknown(ctx context.Context, s *dohost.Storage, after dohost.Cursor, limit int) (list []UnknownTarget, err error) {
	if limit < 0 || limit > 100 {
		return nil, fmt.Errorf("inbox: Unknown with the limit %d: want 1 to 100, or 0 for the default: %w", limit, dohost.ErrMisuse)
	}
	rows, err := unknownRows.List(ctx, s, &dohost.Query[unknownRow]{After: after, Limit: cmp.Or(limit, 50)})
	for _, row := range rows {
		r := row.Value
		list = append(list, UnknownTarget{r.Collection, r.Row, r.Name, time.UnixMilli(r.Since), row.Cursor})
	}
	return list, err
}

// unknownNames are the hooks of the inboxes of a class.
type unknownNames struct {
	parts    []classPart
	messages map[string]*dohost.Collection[Message] // by their names
}

// taken reports whether an inbox takes the messages to a name, given its key.
func (u *unknownNames) taken(collection string, name dohost.Key) bool {
	for _, p := range u.parts {
		if p.collection == collection && p.index == pendingIndex && strings.HasPrefix(string(name), string(p.prefix)) {
			return true
		}
	}
	return false
}

// elsewhere reports whether a name is answered elsewhere.
func (u *unknownNames) elsewhere(name string) bool {
	for _, p := range u.parts {
		if p.elsewhere != nil && p.elsewhere(name) {
			return true
		}
	}
	return false
}

// isUnknown reports whether no agent of an object's class has a name. It does not read the records: one may be older than the agent, and a message
// may be older than the removal of its agent. A class without an inbox has no known names, and other code answers its messages.
func isUnknown(of Ref, collection, name string) bool {
	u := unknownNames{parts: agent.SharedParts[classPart](of, sharedName)}
	return len(u.parts) > 0 && !u.taken(collection, nameKey(name)) && !u.elsewhere(name)
}

// hasInbox reports whether an object's class has an inbox over a collection.
func hasInbox(of Ref, collection string) bool {
	return slices.ContainsFunc(agent.SharedParts[classPart](of, sharedName), func(p classPart) bool { return p.collection == collection })
}

// unknownKey returns the key of the record of a row, given the key of its name.
func unknownKey(collection string, name dohost.Key, row string) string {
	return string(dohost.KeyOf(collection) + name + nameKey(row))
}

// rowWritten keeps the record of a message.
func (u *unknownNames) rowWritten(ctx context.Context, of Ref, w *dohost.RowWrite) error {
	messages := u.messages[w.Collection]
	if messages == nil {
		return nil
	}
	if left := leftInbox(w); left != "" && !u.taken(w.Collection, left) {
		if _, err := unknownRows.Delete(ctx, of.Storage(), unknownKey(w.Collection, left, w.Key)); err != nil {
			return err
		}
	}
	now := waitedFor(w.Places(pendingIndex))
	if now == "" || u.taken(w.Collection, now) {
		return nil
	}
	m, _, err := messages.Get(ctx, of.Storage(), w.Key)
	if err != nil || u.elsewhere(m.Value.To) {
		return err
	}
	key := unknownKey(w.Collection, now, w.Key)
	if _, recorded, err := unknownRows.Get(ctx, of.Storage(), key); err != nil || recorded {
		return err
	}
	name := m.Value.To
	if len(name) > maxUnknownName {
		name = strings.ToValidUTF8(name[:maxUnknownName], "")
	}
	of.Object().Report(ctx, "inbox:unknown", slog.String("collection", w.Collection), slog.String("row", w.Key), slog.String("name", name))
	return unknownRows.Insert(ctx, of.Storage(), unknownRow{key, w.Collection, w.Key, name, time.Now().UnixMilli()})
}

// wake deletes records of names that are known since the class has changed.
func (u *unknownNames) wake(ctx context.Context, of agent.Handle) error {
	q := dohost.Query[unknownRow]{Limit: 1}
	for range maxSwept {
		rows, err := unknownRows.List(ctx, of.Storage(), &q)
		if err != nil || len(rows) == 0 {
			return err
		}
		r := rows[0].Value
		before := strings.TrimSuffix(r.Of, string(nameKey(r.Row))) // the key without the row
		name := dohost.Key(strings.TrimPrefix(before, string(dohost.KeyOf(r.Collection))))
		whole := name == nameKey(r.Name) // not truncated
		if !u.taken(r.Collection, name) && !(whole && u.elsewhere(r.Name)) {
			q.Start = dohost.Key(before).PrefixEnd() // after all messages to the name
			continue
		}
		_, err = unknownRows.Delete(ctx, of.Storage(), r.Of)
		if errors.Is(err, dohost.ErrNoSpace) { // a later wake deletes it
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// detailUnknown is the kind of the records that operators see, and listedUnknown the most that they see without a query.
const (
	detailUnknown = "inbox-unknown"
	listedUnknown = 100
)

// inspect lists the records: all of them to a query of the kind, and the first to others.
func (u *unknownNames) inspect(_ context.Context, v *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
	query := v.Query()
	rows := dohost.Query[unknownRow]{Limit: listedUnknown}
	return func(yield func(dohost.Resource, error) bool) {
		switch query.Kind {
		case "":
		case detailUnknown:
			if rows.Limit = 0; rows.After.UnmarshalText([]byte(query.After)) != nil {
				yield(dohost.Resource{}, &dohost.ArgumentError{Method: "details", Err: fmt.Errorf("%.64q is not a cursor of the kind %s", query.After, detailUnknown)})
				return
			}
		default:
			return
		}
		for row, err := range unknownRows.Scan(v, &rows) {
			if err != nil {
				yield(dohost.Resource{}, err)
				return
			}
			if !yield(row.Value.detail(row.Cursor), nil) {
				return
			}
		}
	}
}

// detail describes a record for operators.
func (r *unknownRow) detail(c dohost.Cursor) dohost.Resource {
	since := time.UnixMilli(r.Since).UTC().Format(time.RFC3339)
	cursor, _ := c.MarshalText() // which does not fail
	return dohost.Resource{
		Kind: detailUnknown, ID: r.Collection + "/" + r.Row, State: "waiting", Cursor: string(cursor),
		Text:   fmt.Sprintf("no agent has the name %q, since %s", r.Name, since),
		Fields: map[string]string{"collection": r.Collection, "row": r.Row, "name": r.Name, "since": since},
	}
}

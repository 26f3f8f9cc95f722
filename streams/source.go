package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/dohost/dohost"
)

// The limits of a feed's page.
const (
	maxSources = 64
	pageRows   = 256
	pageBytes  = 256 << 10
)

// RowsOptions tunes [Rows]. A nil *RowsOptions, and the zero RowsOptions, mean the defaults.
type RowsOptions[T any] struct {
	// Type is the type of the events. Empty means the name of the collection.
	Type string
	// Show returns the part of a row that clients see, as a value with a JSON encoding. The published StreamDB needs a JSON object. Nil shows all
	// exported fields of the row.
	Show func(T) any
	// TxID returns the ID of the client's transaction that has written the row, for the header txid of its events: a StreamDB drops its
	// optimistic rows when it sees the ID. Nil, or an empty ID, means none.
	TxID func(T) string
}

// Source is a collection whose rows [ServeFeed] serves.
type Source struct {
	name string
	feed *dohost.Feed
	// list returns the events of up to limit rows after a cursor, and the cursor of the last row that was read.
	list func(ctx context.Context, s *dohost.Storage, after dohost.Cursor, limit int) (events []json.RawMessage, last dohost.Cursor, more bool, err error)
	// event returns the event of a change of the collection.
	event func(ch *dohost.Change) (json.RawMessage, error)
}

// Rows returns a source with the rows of a collection, which needs a Feed with Values. Keys must be UTF-8.
func Rows[T any](c *dohost.Collection[T], o *RowsOptions[T]) Source {
	if o == nil {
		o = &RowsOptions[T]{}
	}
	e := eventsOf[T]{kind: o.Type, show: o.Show, txid: o.TxID}
	setDefault(&e.kind, c.Name)
	return Source{
		name: c.Name, feed: c.Feed,
		list: func(ctx context.Context, s *dohost.Storage, after dohost.Cursor, limit int) (events []json.RawMessage, last dohost.Cursor, more bool, err error) {
			size := 0
			for row, err := range c.All(ctx, s, &dohost.Query[T]{After: after}) {
				if err != nil {
					return nil, last, false, err
				}
				if len(events) == limit || size >= pageBytes {
					return events, last, true, nil
				}
				event, err := e.of(dohost.OpInsert, row.Key, row.Value)
				if err != nil {
					return nil, last, false, err
				}
				events, last, size = append(events, event), row.Cursor, size+len(event)
			}
			return events, last, false, nil
		},
		event: func(ch *dohost.Change) (json.RawMessage, error) {
			var v T
			if ch.Op != dohost.OpDelete {
				var ok bool
				var err error
				if v, ok, err = c.Value(*ch); err != nil || !ok {
					return nil, errors.Join(errUnreadable, err)
				}
			}
			return e.of(ch.Op, ch.Key, v)
		},
	}
}

// errUnreadable is the error of a change without a value that decodes. The row may have another value by now.
var errUnreadable = errors.New("streams: a change has no value that decodes")

// eventsOf makes the events of a collection.
type eventsOf[T any] struct {
	kind string
	show func(T) any
	txid func(T) string
}

// stateEvent is a change event of the State Protocol of Durable Streams.
type stateEvent struct {
	Type    string       `json:"type"`
	Key     string       `json:"key"`
	Value   any          `json:"value,omitempty"`
	Headers eventHeaders `json:"headers"`
}

// eventHeaders are the headers of a stateEvent.
type eventHeaders struct {
	Operation string `json:"operation"`
	TxID      string `json:"txid,omitempty"`
}

func (e *eventsOf[T]) of(op dohost.Op, key string, v T) (json.RawMessage, error) {
	if key == "" || !utf8.ValidString(key) {
		return nil, fmt.Errorf("streams: the key %.64q of a %q is empty or not UTF-8", key, e.kind)
	}
	event := stateEvent{Type: e.kind, Key: key, Headers: eventHeaders{Operation: "delete"}}
	if op != dohost.OpDelete {
		event.Headers.Operation = map[bool]string{true: "insert", false: "update"}[op == dohost.OpInsert]
		if event.Value = v; e.show != nil {
			event.Value = e.show(v)
		}
		if e.txid != nil {
			event.Headers.TxID = e.txid(v)
		}
	}
	data, err := json.Marshal(event)
	if err != nil {
		return nil, fmt.Errorf("streams: the JSON of the row %.64q of %q: %w", key, e.kind, err)
	}
	return data, nil
}

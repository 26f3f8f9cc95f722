package ledger

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

const (
	maxArgs   = 4 << 10 // bytes of the JSON of the arguments, of the scope and of the position that a row keeps for a reader
	maxError  = 4 << 10 // bytes of the text of an error
	maxResult = 8 << 20 // bytes of a result as JSON; a batch of the store has at most 16 MiB
)

// row is the row of an operation.
type row struct {
	work.Item
	ID   ID
	Kind string
	// Position is the place of the operation in durable work, for a reader.
	Position string `msgpack:",omitempty"`
	Scope    string `msgpack:",omitempty"`
	// Args is the start of the JSON of the arguments, for a reader.
	Args   string
	Result []byte `msgpack:",omitempty"` // JSON; only its beginning, for a reader, if Size is not 0
	// Size is the number of bytes of a result that does not fit into this row: see part.
	Size  int    `msgpack:",omitempty"`
	Error string `msgpack:",omitempty"` // of the last call, or of Find
	Begun int    // calls, since the operation began or last failed
	// Doubt is set if the outcome of an earlier call than the last is unknown.
	Doubt bool `msgpack:",omitempty"`
	// Reported is set if the interruption of the present call has been reported: see reportInterrupted.
	Reported bool `msgpack:",omitempty"`
	// TookEffect is set if the operation took effect, and its result cannot be stored.
	TookEffect bool `msgpack:",omitempty"`
	// Started and Changed are when the operation first began, and when its state last changed, in ms since 1970.
	Started, Changed int64
}

// unfinished reports whether the operation has neither completed nor failed.
func (r *row) unfinished() bool { return r.State != work.Ended }

// The first parts of the keys of the index unfinished.
const (
	rankCalling = iota // rows with a call that has not returned, as far as the row knows
	rankOther          // the others: unknown operations, and those whose interruption has been reported
)

func (r *row) rank() int {
	if r.State == work.Running && !r.Reported {
		return rankCalling
	}
	return rankOther
}

// operations are the operations of an object. The index unfinished has those that are neither completed nor failed, by their rank, and
// the index expires the rows that expire, in the order of that time.
var operations = dohost.Collection[row]{
	Name: "dohost.operations",
	Key:  func(r row) string { return string(r.ID) },
	Indexes: []dohost.Index[row]{
		{Name: "unfinished", Of: func(r row) dohost.Key {
			if !r.unfinished() {
				return ""
			}
			return dohost.KeyOf(r.rank()) + dohost.KeyOf(r.Started)
		}},
		{Name: "expires", Of: func(r row) dohost.Key {
			if r.Expires == 0 {
				return ""
			}
			return dohost.KeyOf(r.Expires)
		}},
	},
}

// clip returns the start of a text, as UTF-8.
func clip(s string, most int) string { return strings.ToValidUTF8(s[:min(len(s), most)], "") }

// encodeResult encodes the result of a call.
func encodeResult(v any) (json.RawMessage, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, &resultError{fmt.Errorf("the result cannot be encoded: %w", err)}
	}
	if len(data) > maxResult {
		return nil, &resultError{&dohost.LimitError{Subject: "JSON of the result", Size: len(data), Limit: maxResult}}
	}
	return data, nil
}

// encodeDecodable encodes the result of a call, and checks that it can be decoded.
func encodeDecodable[R any](r R) (json.RawMessage, error) {
	data, err := encodeResult(r)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, new(R)); err != nil {
		return nil, &resultError{fmt.Errorf("the result cannot be decoded: %w", err)}
	}
	return data, nil
}

// resultError reports that a call has returned a result that cannot be stored. The call took effect, so it is not repeated.
type resultError struct{ error }

// Unwrap returns the error.
func (e *resultError) Unwrap() error { return e.error }

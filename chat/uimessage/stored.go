package uimessage

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/dohost/dohost/chat/internal/rawjson"
)

// Stored is a stored message. The names of its fields are those of a row in the store.
type Stored struct {
	ID string
	// Place is the message's position in the conversation; 0 if it has none. Places have gaps, so that a reply can be
	// stored directly after the messages that it answers, even if others arrived first.
	Place uint64
	Role  Role
	JSON  []byte
	Calls []CallRecord // of the calls without a result
}

// Message decodes the message.
//
// Errors: those of [Message.UnmarshalJSON].
func (r *Stored) Message() (m Message, err error) {
	rawjson.Step(1 + len(r.JSON)/64)
	if err = json.Unmarshal(r.JSON, &m); err != nil {
		err = fmt.Errorf("chat: stored message %q: %w", r.ID, err)
	}
	return m, err
}

// Record returns the record of a call, if it has one.
func (r *Stored) Record(call string) (CallRecord, bool) {
	for _, c := range r.Calls {
		if c.ID == call {
			return c, true
		}
	}
	return CallRecord{}, false
}

// CallRecord is the server's record of a call without a result. It is stored with the message of the call, and no
// frame of a client changes it.
type CallRecord struct {
	ID     string
	Server bool   // the server runs the call: a client can only approve or refuse it
	Sum    []byte // identifies the call as a reply made it; nil if the program stored the call
}

// Made reports whether a reply made the call, with the tool and the input that the call has now.
func (r CallRecord) Made(p Part) bool { return r.Sum != nil && bytes.Equal(r.Sum, sumOf(p)) }

// sumOf identifies the tool and the input of a call.
func sumOf(p Part) []byte {
	input, err := rawjson.Encode(rawjson.OrNull(p.Member("input")))
	if err != nil {
		return nil // the message of the call cannot be stored either
	}
	h := sha256.New()
	for _, b := range [][]byte{[]byte(ToolName(p)), {0}, input} {
		h.Write(b) //nolint:errcheck // never fails
	}
	return h.Sum(nil)
}

// RecordCalls returns the records of a message's calls that wait. A call that had a record keeps it; made has the
// calls that the message's reply made, by id, and whether the server runs them.
func RecordCalls(m *Message, old []CallRecord, made map[string]bool) (records []CallRecord) {
	had := map[string]CallRecord{}
	for _, r := range old {
		had[r.ID] = r
	}
	seen := map[string]bool{}
	for _, p := range m.Parts {
		id := p.Text("toolCallId")
		if !IsPending(p) || seen[id] {
			continue
		}
		seen[id] = true
		r, ok := had[id]
		if !ok {
			r = CallRecord{ID: id}
			if r.Server, ok = made[id]; ok {
				r.Sum = sumOf(p)
			}
		}
		records = append(records, r)
	}
	return records
}

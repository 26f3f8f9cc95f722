package uimessage

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/dohost/dohost/chat/internal/rawjson"
)

// Stored is a stored message. Its fields have the names of the stored row.
type Stored struct {
	ID string
	// Place is the message's position in the conversation; 0 if it has none. Places have gaps, so that a reply can be
	// stored directly after the messages that it answers, even if others arrived first.
	Place uint64
	Role  Role
	JSON  []byte
	// Work identifies the durable work of the replies to the message. The server chooses it at random, unlike the ID: a message
	// that is stored again after its deletion has another one.
	Work string
	// Asked is set for a request of another agent. Clients cannot write such a message.
	Asked bool `msgpack:",omitempty"`
}

// Message decodes the message.
//
// Errors: the errors of [Message.UnmarshalJSON].
func (r *Stored) Message() (m Message, err error) {
	rawjson.Step(1 + len(r.JSON)/64)
	if err = json.Unmarshal(r.JSON, &m); err != nil {
		err = fmt.Errorf("chat: stored message %q: %w", r.ID, err)
	}
	return m, err
}

// Digest identifies the tool and the input of a call. It is nil for an input that is not JSON, which no message has.
func Digest(tool string, input json.RawMessage) []byte {
	input, err := rawjson.Encode(rawjson.OrNull(input))
	if err != nil {
		return nil
	}
	h := sha256.New()
	for _, b := range [][]byte{[]byte(tool), {0}, input} {
		h.Write(b) //nolint:errcheck // never fails
	}
	return h.Sum(nil)
}

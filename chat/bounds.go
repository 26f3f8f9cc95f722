package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat/internal/rawjson"
)

// Bounds of JSON from clients. A decoded message, part or member takes far more memory than its text, so they are
// counted before anything is decoded.
const (
	// maxNesting bounds how deep the values in a frame, and in the body of a request, are nested.
	maxNesting = 128
	// maxMessageNesting bounds the nesting of a stored message: a frame with all of them is within maxNesting.
	maxMessageNesting = 110
	// maxFrameMessages, maxFrameParts, maxFrameMembers and maxFrameTools bound the messages of a list, the parts of all
	// of them, the members of all of these, and the tools of a client.
	maxFrameMessages = 10_000
	maxFrameParts    = 50_000
	maxFrameMembers  = 400_000
	maxFrameTools    = 1_000
	// maxConversation is the default of [Options.MaxBytes].
	maxConversation = 32 << 20
	// maxOpenRequests bounds the requests of a conversation that have not ended.
	maxOpenRequests = 100
)

// errNesting is the error for JSON that is nested deeper than its bound.
var errNesting error = &dohost.PublicError{Message: "chat: the JSON is nested too deeply", Code: "bad_request", Status: http.StatusBadRequest}

// checkFrame returns an error if a frame, or the body of a request, exceeds the bounds. It makes one pass.
//
// Errors: errNesting; one that names the bound.
func checkFrame(data []byte) error {
	var s shape
	if err := s.scan(data, maxNesting); err != nil {
		return err
	}
	for _, c := range []struct {
		what     string
		is, most int
	}{
		{"messages", s.messages, maxFrameMessages}, {"parts", s.parts, maxFrameParts},
		{"members", s.members, maxFrameMembers}, {"tools", s.tools, maxFrameTools},
	} {
		if c.is > c.most {
			return fmt.Errorf("chat: the frame has %d %s, the limit is %d", c.is, c.what, c.most)
		}
	}
	return nil
}

// shape counts the elements and members of JSON before it is decoded: by their commas, and by the arrays and objects
// that contain them.
type shape struct {
	messages, parts, members, tools int

	list  string // the member of the outermost object that contains the scan's position
	stack []byte // the arrays and objects that contain the scan's position
}

// scan adds the counts of JSON. It fails if the JSON is nested deeper than most.
func (s *shape) scan(data []byte, most int) error {
	var text []byte // the last string
	for i := 0; i < len(data); i++ {
		switch c := data[i]; c {
		case '"':
			end := rawjson.EndOfString(data, i)
			text, i = data[i:end], end-1
			rawjson.Step(1 + len(text)/64)
		case ':':
			if len(s.stack) == 1 {
				s.list = nameOf(text)
			}
		case '{', '[':
			s.stack = append(s.stack, c)
			if len(s.stack) > most {
				return errNesting
			}
			s.count()
		case ',':
			s.count()
		case '}', ']':
			s.stack = s.stack[:max(0, len(s.stack)-1)]
		}
	}
	return nil
}

// count counts one more element or member.
func (s *shape) count() {
	rawjson.Step(1)
	depth := len(s.stack)
	if depth == 0 {
		return
	}
	array := s.stack[depth-1] == '['
	switch {
	case depth == 1:
		s.members++
	case s.list == "clientTools" && depth == 2 && array:
		s.tools++
	case s.list != "messages" || depth > 5:
	case !array:
		s.members++
	case depth == 2:
		s.messages++
	default:
		s.parts++
	}
}

// nameOf returns the name of a member, which may be written with escapes.
func nameOf(text []byte) (name string) {
	switch {
	case len(text) > 80 || len(text) < 2:
		return ""
	case bytes.IndexByte(text, '\\') < 0:
		return string(text[1 : len(text)-1])
	}
	_ = json.Unmarshal(text, &name) // an invalid name matches no member
	return name
}

package chat

import (
	"context"
	"errors"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat/uimessage"
)

// Role is the author of a message. It is an alias, so that a program imports this package alone.
type Role = uimessage.Role

// The roles of messages.
const (
	RoleSystem    Role = uimessage.RoleSystem
	RoleUser      Role = uimessage.RoleUser
	RoleAssistant Role = uimessage.RoleAssistant
)

// Message is one message of a conversation: a UIMessage of the AI SDK. As JSON it has the members id, role, parts and
// metadata; other members are preserved unchanged. It is an alias, so that a program imports this package alone;
// [uimessage.Message] lists its methods.
type Message = uimessage.Message

// Text returns a message with one text part.
func Text(id string, r Role, text string) Message {
	return Message{ID: id, Role: r, Parts: []Part{uimessage.MakePart("text", "text", text)}}
}

// Part is a part of a message: a text, a reasoning, a tool call, a file, a source, or data of the program's own. Its
// members are preserved unchanged. The zero Part is invalid. It is an alias, so that a program imports this package
// alone; [uimessage.Part] lists its methods.
type Part = uimessage.Part

// NewPart makes a part of a type, with its other members encoded as JSON, such as "text" with the member text, or
// "file" with mediaType and url.
//
// Errors: one for an empty type, and one for a member that cannot be encoded.
func NewPart(kind string, members map[string]any) (Part, error) {
	if kind == "" {
		return Part{}, errors.New("chat: a part without a type")
	}
	var p Part
	for name, v := range members {
		var err error
		if p, err = p.Replace(name, v); err != nil {
			return Part{}, err
		}
	}
	return p.Replace("type", kind)
}

// Messages returns the conversation: the newest limit messages, the oldest first, or all if limit is 0. It omits the
// running reply.
func Messages(ctx context.Context, a Ref, limit int) ([]Message, error) {
	if limit < 0 {
		return nil, errors.New("chat: the limit is negative")
	}
	return a.conv().messages.newest(ctx, dohost.Query[messageRow]{Limit: limit})
}

// SetMessages stores messages, replaces stored messages with the same ids, and sends clients the conversation. A tool
// call that is stored or changed in this way does not run on the server: [Answer] runs only the calls that its model
// made. Check a client's messages before you pass them to SetMessages.
//
// Errors: a [*dohost.LimitError] for a message that does not fit into a row; one for an invalid message;
// the error of [agent.CheckWrite] in an event of a read-only client; [dohost.ErrMisuse] in OnCall of [Handlers].
func SetMessages(ctx context.Context, a Ref, list []Message) error {
	k := a.conv()
	if err := k.calls.checkChange(ctx); err != nil {
		return err
	}
	if err := dohost.Transaction(ctx, func(ctx context.Context) error { return k.messages.putAll(ctx, list) }); err != nil {
		return err
	}
	return k.clients.broadcastTranscript(ctx, k.clients.openConns())
}

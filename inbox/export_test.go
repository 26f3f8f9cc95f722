package inbox

import (
	"context"

	"github.com/dohost/dohost"
)

// UnknownHook returns the hook that records messages to unknown names, in a class whose agents have these names.
func UnknownHook(messages *dohost.Collection[Message], names ...string) func(context.Context, *dohost.State, *dohost.RowWrite) error {
	u := unknownNames{messages: map[string]*dohost.Collection[Message]{messages.Name: messages}}
	for _, name := range names {
		u.parts = append(u.parts, classPart{collection: messages.Name, index: pendingIndex, prefix: nameKey(name), messages: messages})
	}
	return u.rowWritten
}

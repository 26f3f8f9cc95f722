// Package transcript makes the frames of a conversation the same each time, so that those that clients
// were recorded to send can be compared with those that tests send.
package transcript

import (
	"fmt"
	"regexp"
)

var (
	// named is a member that is an id, in a frame or in the JSON that a frame has as a text. Those of
	// digits alone are a model's names of its texts.
	named = regexp.MustCompile(`("(?:id|probeId|messageId|toolCallId|approvalId|of)\\*":\\*")([^"\\]+)`)
	count = regexp.MustCompile(`(?:\d+\.\d+ )+`)
	ends  = regexp.MustCompile(`^\((cut|close.*)\)`)
)

// Frame is a frame in which ids are numbered in the order in which they stand, and however many words of a
// count stand for all: "1.0 1.1 ".
func Frame(text string) string {
	known := map[string]string{}
	text = named.ReplaceAllStringFunc(text, func(member string) string {
		m := named.FindStringSubmatch(member)
		if known[m[2]] == "" {
			known[m[2]] = fmt.Sprintf("id-%d", len(known)+1)
		}
		return m[1] + known[m[2]]
	})
	return count.ReplaceAllString(text, "1.0 1.1 ")
}

// Sent says that it is a client's frame, and not how its connection has ended.
func Sent(text string) bool { return !ends.MatchString(text) }

// Package transcript normalizes the frames of a conversation, so that recorded frames of
// real clients can be compared with the frames of tests.
package transcript

import (
	"fmt"
	"regexp"
)

var (
	// named matches a member with an id, in a frame or in JSON text inside a frame. An id
	// of digits only is a model's name for one of its texts.
	named = regexp.MustCompile(`("(?:id|probeId|messageId|toolCallId|approvalId|of)\\*":\\*")([^"\\]+)`)
	count = regexp.MustCompile(`(?:\d+\.\d+ )+`)
	ends  = regexp.MustCompile(`^\((cut|close.*)\)`)
)

// Frame replaces the ids of a frame by numbers, in order of appearance, and a count of any
// length by "1.0 1.1 ".
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

// Sent reports whether text is a client's frame, and not the end of its connection.
func Sent(text string) bool { return !ends.MatchString(text) }

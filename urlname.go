package dohost

import (
	"strings"
	"unicode"
)

// URLName returns the form of a class's name in URLs, by the rules of the Agents SDK. A name all in capitals is
// lower-cased; in other names each capital begins a new part: ChatRoom becomes chat-room. Underscores become
// hyphens.
func URLName(name string) string {
	if name == strings.ToUpper(name) && name != strings.ToLower(name) {
		return strings.ReplaceAll(strings.ToLower(name), "_", "-")
	}
	var b strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	k := strings.TrimPrefix(b.String(), "-")
	return strings.TrimSuffix(strings.ReplaceAll(k, "_", "-"), "-")
}

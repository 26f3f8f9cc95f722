package dohost

import (
	"strings"
	"unicode"
)

// Kebab is how the name of a class is written in URLs, as the Agents SDK has it: a name all in
// capitals is lower-cased, and in others each capital begins a new part, so that ChatRoom is
// chat-room. Underscores become hyphens.
func Kebab(name string) string {
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

package objectstore

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of names, in bytes.
const (
	MaxClass = 256
	MaxName  = 1024
)

// ID names an object: its class and its name within the class. A class has 1 to
// MaxClass bytes and no slash, a name 1 to MaxName bytes; both are valid UTF-8
// without control characters.
type ID struct {
	Class string
	Name  string
}

// String returns class/name. ParseID reads it back.
func (id ID) String() string { return id.Class + "/" + id.Name }

// ParseID splits s at the first slash and validates both halves. Its error is a
// *NameError.
func ParseID(s string) (ID, error) {
	class, name, ok := strings.Cut(s, "/")
	if !ok {
		return ID{}, &NameError{Kind: "id", Value: s, Reason: "is not class/name"}
	}
	id := ID{Class: class, Name: name}
	return id, id.Validate()
}

// Validate returns a *NameError if the class or the name is not allowed.
func (id ID) Validate() error {
	if strings.Contains(id.Class, "/") {
		return &NameError{Kind: "class", Value: id.Class, Reason: "contains a slash"}
	}
	if err := validateName("class", id.Class, MaxClass); err != nil {
		return err
	}
	return validateName("name", id.Name, MaxName)
}

func validateName(what, s string, limit int) error {
	reason := ""
	switch {
	case s == "":
		reason = "is empty"
	case len(s) > limit:
		reason = fmt.Sprintf("has %d bytes, the limit is %d", len(s), limit)
	case !utf8.ValidString(s):
		reason = "is not valid UTF-8"
	case strings.IndexFunc(s, unicode.IsControl) >= 0:
		reason = "contains a control character"
	default:
		return nil
	}
	return &NameError{Kind: what, Value: s, Reason: reason}
}

// NameError reports which part of an ID, or which name of a collection, an index or a feed, is not allowed, and why.
type NameError struct {
	Kind   string // "class", "name", "id", "collection", "index" or "feed"
	Value  string
	Reason string // such as "has 300 bytes, the limit is 256"
}

// Error implements error. It contains at most 32 bytes of the value.
func (e *NameError) Error() string {
	if e == nil {
		return "dohost: nil *NameError"
	}
	v := e.Value
	if len(v) > 32 {
		v = v[:32] + "..."
	}
	return fmt.Sprintf("dohost: %s %q %s", e.Kind, v, e.Reason)
}

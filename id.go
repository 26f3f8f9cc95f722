package dohost

import (
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// ID names an object: class and name.
type ID = runtime.ID

// ParseID reads class/name. Its error is a [*NameError].
func ParseID(s string) (ID, error) { return objectstore.ParseID(s) }

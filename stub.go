package dohost

// Stub addresses an object. It is a small value, which may be copied and kept for
// as long as its host is open.
type Stub[O any] struct{ to target }

// target is the object that a stub addresses.
type target struct {
	at Locator
	id ID
}

// ID returns the object's class and name.
func (s Stub[O]) ID() ID { return s.to.id }

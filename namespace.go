package dohost

// Namespace is the stored name of a class. Its objects are values of type O. It is meant to be a constant:
//
//	const Counters dohost.Namespace[Counter] = "counter"
type Namespace[O any] string

// Get returns a stub for the object of that name. It does no I/O and cannot fail; the object exists once something
// has been written to it.
func (n Namespace[O]) Get(l Locator, name string) Stub[O] {
	if st, ok := l.(*State); ok { // a stub must not keep the incarnation in memory
		l = st.host()
	}
	return Stub[O]{target{at: l, id: ID{Class: string(n), Name: name}}}
}

// Package dohost is Durable Objects for Go: one live instance per key, its state in an embedded
// Pebble store, one persistent alarm, and an eviction policy that behaves like Cloudflare's, or
// evicts more often on request.
//
// # Five nouns
//
// A [Host] owns a directory and runs the objects in it. A [Namespace] is the name of a class of objects, as a typed
// constant. A [Stub] addresses one object by its name, and costs nothing. An object's code gets a [State] when it
// wakes: its identity, its alarm, and its [Storage].
//
//	host, err := dohost.Open("data", nil, counter.Class())
//	...
//	alice := counter.Counters.Get(host, "alice")
//	n, err := dohost.Call(ctx, alice, (*counter.Counter).Add, 2)
//
// Package examples/counter has this class. The example of the package opens a host twice.
//
// # Two verbs
//
// [Call] runs a method of an object, and wakes the object if necessary. [Await] lets an object wait for
// something outside: while its function runs, other events may use the object.
//
// # Three guarantees
//
// Between its Awaits and Calls an event runs alone in its object: it holds the turn. No output leaves the
// object, not even an error, before all its earlier writes are durable. An ended incarnation can write
// nothing, set no alarm and answer no caller, although its goroutines cannot be killed. The next incarnation
// does not wait for them.
package dohost

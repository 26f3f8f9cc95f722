// Package dohost is Durable Objects for Go: one live instance per key, its state
// in an embedded Pebble store, one persistent alarm, and an eviction policy that
// behaves like the real platform's, or worse on request.
//
// # Five nouns
//
// A [Host] owns a directory and runs the objects in it. A [Namespace] is the name
// of a class of objects, as a typed constant. A [Stub] addresses one object by its
// name, and costs nothing. [State] is what an object's code is handed when it
// wakes: who it is, its alarm, and its [Storage].
//
// # Two verbs
//
// [Call] runs a method of an object, wherever that is alive or not. [Await] is the
// way out of an object: while its function runs, other events may use the object.
//
// # Three guarantees
//
// Between Awaits and Calls nothing else happens in the object: one event holds its
// turn. Nothing leaves the object, not even an error, before everything it wrote is
// durable. An incarnation that has ended can write nothing, set no alarm and answer
// nobody, although its goroutines cannot be killed; the next one starts at once.
package dohost

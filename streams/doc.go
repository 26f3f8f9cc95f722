// Package streams is a server of the Durable Streams protocol: append-only streams over HTTP that clients create, append to, and
// read from any offset, even while they grow. Each stream is an object, and the published clients of the protocol work unmodified.
//
//	h, err := dohost.Open("data", nil, streams.Classes(nil)...)
//	...
//	http.ListenAndServe(addr, streams.Server(h, nil))
//
// [Server] answers these requests, for a stream at any path below ServerOptions.Prefix:
//
//	PUT      creates a stream, or confirms that it exists with the same properties
//	POST     appends to it, closes it, or both
//	GET      returns the data after ?offset=, waits for it with live=long-poll, or follows it with live=sse
//	HEAD     returns its properties
//	DELETE   deletes it
//
// A response to a writer leaves when the data is durable, and a reader never sees data before that. The server refuses the protocol's
// forks with status 501.
//
// A JSON message has at most 1 MiB, and a body ServerOptions.MaxBody. A stream has at most 1,000 producers; a further one replaces a
// producer that was idle for more than 7 days, or gets status 429. A host has at most 1,000 subscriptions. Each names at most 1,000
// streams. At most 100 subscriptions name a stream, and the patterns of at most 100 match it. A lease lasts 1 s to 10 min, by
// default 30 s.
//
// Below the path __ds, Server answers requests for subscriptions: durable cursors in streams, and
// wakes, by webhook or through a stream of wakes, for the workers that advance the cursors.
//
// [ServeFeed] serves the rows of an object's collections, and their changes, in the same protocol.
//
// # Objects, subscriptions and readers
//
// An append is one event of the stream's object ([Stream]): it writes the data, the state of the stream and the state of the producer in
// one batch, or nothing if a write fails. So a producer that repeats a request after a crash, or after a full disk, appends once.
//
// A subscription is an object too ([Subscription]). The batch of an append contains a notice for each subscription of the stream; the
// append waits for no subscription. The stream sends the notices afterwards, and keeps each until its subscription has accepted it.
//
// A reader is not an event of the object. Each of its reads is a short event, which the readers of one stream at one offset share.
// Between two reads a reader waits for a signal of the class, outside of the object, so the object may leave memory.
package streams

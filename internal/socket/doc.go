// Package socket keeps the WebSockets of a host's objects, which outlive incarnations.
//
// # A socket
//
// A [Conn] is made when an object's HTTP handler accepts a request: the object finds it
// among its sockets at once, and what is sent to it waits. It opens when the handler's
// last segment is durable and the client is answered; from then on the goroutine that
// served the request reads. It ends once: by the client, by the object, by an end of the
// incarnation that does not keep sockets, or with the host.
//
// # What stays true
//
//   - Frames of one socket are delivered in order, each when the handler of the one before
//     has returned or has given up the turn. A frame that cannot be delivered closes the
//     socket: none is lost in silence.
//   - What is sent leaves in the order in which it was released by the object, and a closing
//     frame after all of it.
//   - Whoever sends does not wait: frames queue, and a client for whom too much waits is
//     closed.
//   - An object that is told of a socket's end finds it no longer among its sockets, and is
//     told once. Of a socket that was closed because its incarnation was ended nobody is
//     told: those who come after have never had it.
//   - Ended is called before the next incarnation begins, and sees every socket that was
//     accepted before: Accept is followed by a look at whether the incarnation has ended.
//
// # Locks and goroutines
//
// Table.mu, then Conn.mu; neither is held during I/O or while an object is called. A socket
// has the goroutine that reads, and one that writes while there is something to write. A
// host with sockets has one that asks silent clients whether they are there.
package socket

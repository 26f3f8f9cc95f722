// Package socket keeps the WebSockets of a host's objects, which outlive incarnations.
//
// # A socket
//
// A [Conn] is made when an object's HTTP handler accepts a request: the object finds it
// among its sockets at once, and what is sent to it waits. It opens when the handler's
// last segment is durable and the client is answered; from then on it has a goroutine of
// its own that reads, and the server's is free, with its buffers. It ends once: by the
// client, by the object, by an end of the incarnation that does not keep sockets, or with
// the host.
//
// # What stays true
//
//   - Frames of one socket are delivered in order, each when the handler of the one before
//     has returned or has given up the turn. A frame that cannot be delivered closes the
//     socket: none is lost in silence.
//   - What is sent leaves in the order in which it was released by the object, whether it is
//     for one socket or for many, and a closing frame after all of it. To release something
//     for many is constant work: a goroutine of the object's hands it out.
//   - Sending does not wait: frames queue, and a client for which too much waits is closed. So
//     are, when too much waits for all clients of the host, those for which most waits.
//   - The bytes of frames that are being read, until their handlers have returned or given up the
//     turn, are those of a budget of the host.
//   - An object that is told of a socket's end finds it no longer among its sockets, and is
//     told once. Of a socket that was closed because its incarnation was ended nobody is
//     told: those who come after have never had it.
//   - Ended is called before the next incarnation begins, and sees every socket that was
//     accepted before: Accept is followed by a look at whether the incarnation has ended.
//
// # Locks and goroutines
//
// The lock of one of the table's shards, then a fan's, then a Conn's; none is held during I/O
// or while an object is called. An object without a socket takes none where its shard has
// no room.
//
// A socket has the goroutine that reads, and one that writes while there is something to
// write. An object has one while something for many sockets is handed out. A host that has
// had a socket has one that asks silent clients whether they are there, and one that closes the
// sockets with the longest queues.
//
// # The wire
//
// The library (coder/websocket) does the handshakes, reads, and writes control frames. What
// objects send is written here: a frame for many sockets is packed once, and what waits for a
// socket leaves in one go. The two may write at the same moment, for each Write is of whole
// frames.
package socket

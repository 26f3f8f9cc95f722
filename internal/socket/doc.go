// Package socket keeps the WebSockets of a host's objects, which outlive incarnations.
//
// # A socket
//
// A [Conn] is made when an object's HTTP handler accepts a request: the socket is among the object's sockets
// immediately, and frames sent to it queue. It opens when the handler's last batch is durable and the client is
// answered. From then on it has a goroutine of its own that reads; the server's goroutine, with its buffers, is free.
// It ends once: by the client, by the object, by an end of the incarnation that does not keep sockets, or with the
// host.
//
// # Invariants
//
//   - Frames of one socket are delivered in order, each when the handler of the previous one has returned or has
//     given up the turn. A frame that cannot be delivered closes the socket: none is lost silently.
//   - Outputs are sent in the order of their release by the object, for one socket or for many, and a closing frame
//     after all earlier frames. Releasing a frame for many sockets is constant work: a goroutine of the object's
//     distributes it.
//   - Sending does not wait: frames queue, and the host closes the socket of a client that has too many bytes in its
//     queue. If too many bytes wait for all clients of the host, it closes the sockets with the longest queues.
//   - A budget of the host counts the bytes of the frames that are being read or handled, until the handler returns
//     or gives up the turn.
//   - The host notifies an object of a socket's end once, and by then the socket is no longer among the object's
//     sockets. It does not notify the object of sockets that it closed because their incarnation was ended: later
//     incarnations never had them.
//   - Ended is called before the next incarnation begins, and sees every socket that was accepted before: after
//     Accept the caller checks whether the incarnation has ended.
//
// # Locks and goroutines
//
// The lock of a table's shard, then a broadcaster's, then a Conn's; none is held during I/O or while an object is
// called. A call for an object takes no lock if no object of its shard has a socket.
//
// A socket has a goroutine that reads, and one that writes while frames wait. An object has one while a frame for
// many sockets is distributed. A host that has had a socket has one that pings silent clients, and one that closes
// the sockets with the longest queues.
//
// # The wire
//
// The library (coder/websocket) does the handshakes, reads, and writes control frames. This package writes the frames
// that objects send: a frame for many sockets is encoded once, and all frames that wait for a socket are written in
// one call. Both may write concurrently, since each Write has whole frames.
package socket

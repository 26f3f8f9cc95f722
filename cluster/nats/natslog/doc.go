// Package natslog is a shared log in a stream of NATS JetStream, which three servers keep. It is the history of one cell: one host with
// its store.
//
// # Fence
//
// A record is one message of the stream, or several if it is larger than the servers accept. Each message is published with the sequence
// of the message before it, which the server compares in the same step. An owner knows this sequence from the acknowledgement of its
// last message, and has one message in flight. A host that acquires the log publishes a message of its own first, the mark. From then on
// the server refuses each message of the former owner, even if clocks are wrong.
//
// A refusal alone is not a proof: the answer to an earlier attempt may have been lost, or a new leader of the stream may not have all
// messages yet. So a refused owner reads the message after its last one. If it is its own, it is confirmed; if it is another host's, the
// owner is fenced; if there is none, the outcome is unknown, and the host repeats the append.
//
// # Bases
//
// The content of a base is in a stream for bases. A message of the log names it, so publishing is an append. Each later message of the log
// has the sequence of this message, so an owner that knows the last message knows the newest base. A purge deletes the messages before a
// record. It cannot compare anything, so one by a former owner may be late; it deletes only records that a published base has.
//
// # Sessions
//
// A node has one lease, its session: a key in a bucket, with an expiry of [Options.LeaseTime], which the node renews three times in that
// time. The session of a node of a [Table] is its record as a member. A log without a Table has a session for each lease. The owner of a
// cell has a key too, without an expiry. Its value names the session, and the owner has the cell as long as the key of the session exists.
//
//	session begins   write its key if it does not exist. Its name is random, and is never used again
//	renewal          replace its key by the same value if it has the revision of the last write
//	acquisition  1   read the owner's key: free, or prove that the session it names has ended
//	             2   replace the owner's key if it has the revision that was read
//	             3   publish the mark in the stream of the cell; if the stream is empty, only if the cell never had an owner
//	             4   write that the cell has had an owner, in another key, unless that key exists
//	release      1   the lease is invalid
//	             2   mark the owner's key as deleted if it has the revision that was read and still names the session
//	session ends 1   all leases are invalid
//	             2   mark its key as deleted if it has the revision of the last write
//
// The end of a session is a write, never a read. A read that finds no key may be old. So the host that waits writes a mark to that key, and the
// servers accept it only if the key does not exist. All writes of the bucket have one order. After the mark no renewal can be accepted: each
// one expects the revision of a write before the mark, and the servers keep only the last message of a key. So the session has ended for
// good, also if the leadership of the bucket moves to a server that has not let the key expire yet. A mark that a host reads is a proof even
// if the read is old. The mark itself expires after a second, and a renewal is then refused because its key does not exist.
//
// The key of an owner never expires, so its revision only grows. A host that has given up an acquisition, or has released a cell, writes
// to the key until it has another revision than its late messages expect. If the servers do not answer, the next renewals repeat that, and the
// cell has no other owner until then, or until the session has ended. The node itself may acquire the cell again.
//
// A session is valid until half a second before its key can expire, by the node's own monotonic clock or its wall clock, whichever is
// ahead, counted from the sending of the last renewal that was acknowledged. All leases of the node become invalid with it, for good: a renewal
// that is acknowledged later extends only the key, as does one whose answer was lost. The first write of a key expects no revision, so the
// servers may accept one that arrives after the end of its session. Then the node counts as a member, and its cells are not free, until that
// key has expired as well. A node whose session has ended begins another one, marks the key of the ended one as deleted, and acquires its
// cells again.
//
// So two leases of a cell are valid at one time only if clocks run at different rates, if the leadership of the bucket moves between
// servers whose clocks differ by more than half a second, or if a machine was suspended and both of its clocks stand still. Even then the
// log has one history, since the fence compares no times, and a former owner can only answer reads with old rows.
//
// A lease of three seconds, the default, does not outlast an election of the servers, which takes four to nine seconds: if the server
// that leads the bucket is killed, the owner's host fails, and the program acquires the log again. With cells, the hosts of all nodes fail. With
// [Options.LeaseTime] of 20 s the hosts wait for the election instead, but a host that replaces a killed owner waits for 20 s as well.
//
// # Table
//
// [Table] has the members and the plan of several cells, in the bucket of the owners. The record of a member is the session of its node,
// so the node is a member as long as no other node can acquire its cells. For at most two seconds after a mark has ended a session, a node that has
// not read the table since the record expired may still count the member.
//
// # Servers
//
// Open refuses servers that lose acknowledged messages in a power failure, and servers that were not tested: see [Options]. Servers sync
// each message only with sync_interval: always. Never remove a peer of the stream while another server is down or unreachable: several
// open issues of nats-server lose acknowledged messages then. A host verifies the chain of all records that it reads, so it refuses to
// open on a stream that has lost records, if its directory has them. If the whole stream is lost, Open makes another one, and no host
// acquires the empty log if the key of step 4 exists, or a base. If the servers have lost them too, a host without a directory begins an
// empty store.
package natslog

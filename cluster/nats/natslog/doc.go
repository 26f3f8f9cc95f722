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
// messages yet. So a refused owner reads the message after its last one. If it is its own, it is confirmed; if it is that of another
// host, the owner is fenced; if there is none, the outcome is unknown, and the host repeats the append.
//
// # Bases
//
// The content of a base is in a stream for bases. A message of the log names it, so publishing is an append. Each later message of the log
// has the sequence of this message, so an owner that knows the last message knows the newest base. A purge deletes the messages before a
// record. It cannot compare anything, so one by a former owner may be late; it deletes only records that a published base has.
//
// # Lease
//
// The owner of a cell has a key in a bucket with expiry, and renews it three times in the time of a lease. A host acquires the log when the
// key has expired, or was deleted by a release. The bucket decides by comparing revisions, never by a read. The owner calls its lease
// invalid half a second before the key can expire, by its own monotonic clock or its wall clock, whichever is ahead, counted from the
// sending of the last renewal that was acknowledged. So two leases are valid at one time only if clocks run at different rates, if the
// leadership of the bucket moves between servers whose clocks differ by more than half a second, or if a machine was suspended and both
// of its clocks stand still. Even then the log has one history, and a former owner can only answer reads with old rows.
//
// A lease of three seconds, the default, does not outlast an election of the servers, which takes four to nine seconds: if the server
// that leads the bucket is killed, the owner's host fails, and the program acquires the log again. With [Options.LeaseTime] of 20 s the
// host waits for the election instead, but a host that replaces a killed owner waits for 20 s as well.
//
// # Table
//
// [Table] has the members and the plan of several cells, in the bucket of the owners. [Options.LeaseTime] is also the time to live of a
// member's record.
//
// # Servers
//
// Open refuses servers that lose acknowledged messages in a power failure, and those that were not tested: see [Options]. Servers sync
// each message only with sync_interval: always. Never remove a peer of the stream while another server is down or unreachable: several
// open issues of nats-server lose acknowledged messages then. A host verifies the chain of all records that it reads, so it refuses to
// open on a stream that has lost records, if its directory has them.
package natslog

// Package objectstore keeps the state of objects in one Pebble database: each
// object owns a key range, and no key of one object is visible to another. It is
// the only package that knows Pebble, and shows nothing of it.
//
// # How a write becomes durable
//
// Pebble shows a batch to readers before it is synced and cannot take it back.
// So it never gets to see a write early:
//
//	Segment ── HandOver ──▶ filling ── record taken ──▶ in flight ── synced ──▶ Pebble
//	(one turn)              (generations of the Range)                     outputs leave
//
// A [Segment] is what an object wrote and emitted since it took the turn. HandOver
// merges it into the range's filling generation: the last value of each key, and
// the outputs in order. One goroutine per store, the committer, swaps the filling
// generations of all ranges that have one into a record, makes that durable, drops
// the generations from memory and releases their outputs. One record is in flight
// at a time. While it is, hand-overs gather in the next one: an object that
// overwrites a key a thousand times during one sync costs one row. Before it takes a
// record the committer yields once, so that what can be handed over now is in it.
//
// # What holds
//
// History. HandOver is the only point at which a segment becomes history. Begin,
// Fence and HandOver take the same lock, so one of them is first. What was handed
// over before a fence stays: the next life reads it and waits behind it. What
// comes after is refused and never happened. Generations belong to the range, not
// to a life. FenceDropping alone takes hand-overs back, whole generations of them,
// which is what a power cut at that moment could have done.
//
// Reading. A read looks at the segment, filling, in flight and Pebble, in this
// order. A generation leaves memory only after its record is readable in Pebble,
// and an iterator copies the part in memory first and opens Pebble's iterator
// second, so a row is seen in one place at least. After a DeleteAll the layers
// below it are not read.
//
// What landed. The generation that became durable last stays with the range, if it
// is small, and reads of single keys look at it before Pebble, which has the same.
// An object that wakes is read whole, if it is small: what Pebble has of it stays
// with the range as if it had landed, with nothing below it, and what lands from then
// on is added to it. It is not kept if something has landed while it was read.
// All of this belongs to what the range wrote itself: whoever writes to the object by
// another way, as an import does, must go on with a new Range.
//
// Age. What is deleted is walked over until it is compacted away. The committer has
// the memtable flushed when the deletions in it weigh as much as it holds, and each
// flushed table is compacted into the level below: so much is walked over at most.
//
// Outputs. An output waits for everything the object handed over before it, by
// whatever life, and not for what comes later. It joins the newest undurable
// generation that is gated, which is one that holds a write that is not NoWait.
// If there is none it leaves at once. A Sync output waits for NoWait writes as
// well. The outputs of a range are released in the order of their hand-over,
// always: one goroutine releases at a time, and an output that could leave still
// queues behind those that are waiting or leaving.
//
// Durable views. Only the committer writes, and a [Snapshot] is taken between two
// records: it shows nothing that a power cut could take back. A range's own reads
// do show such state, which is why their outputs wait.
//
// DeleteAll. The goroutine that calls it reads the keys of the object, up to 1,000, and the
// record deletes these, or the whole range if there are more. Keys that were handed over
// before are among them. If something is handed over in between, the record deletes the
// whole range. So a record is made without reading rows, and its size counts deletions.
//
// Alarms. An object's slot and its entries in the alarm indexes change in one
// record. The entry to remove is that of the slot which Pebble holds when the
// record is built: a slot set a thousand times in between costs one entry. A slot has
// one entry: in the index of its class, in that of the suspects if it has a charge, or
// in that of the parked ones; and one more in the boot index, if it is none of the
// latter two and asks for it.
//
// Failure. A failed sync fails the store, not an object: the log's error is final,
// and what was being written stays visible to readers. So nothing more is
// written, every output is released with [ErrFenced], hand-overs are refused, and
// the database is closed at once, before a rotation of its memtable would take the
// process down. What was in flight may be found when the store is opened again. A
// panic of the engine on the committer is not recovered: whoever goes on after it
// serves data that is not on the disk.
//
// Damage. A damaged block is an error of the read that needs it, and of no other: see
// [ErrDamaged]. Failures of the engine's work in the background are repeated with pauses
// and do not fail the store. While a flush fails, Put returns [ErrNoSpace] with the
// cause, before the engine needs a log file that it cannot make. A flush that fails
// during Open is Open's error.
//
// A record reads one thing of the engine, before it writes anything: the alarm slots that
// it replaces. If a slot lies in a damaged block, the new one takes its place, and its
// index entries remain until they are due. If it cannot be read for another reason, its
// range alone fails: its generation in flight and the younger one are dropped, which is
// what a power cut could have done, the range has no owner, the outputs are released with
// [ErrFenced], and Options.OnTakenBack is called. The other ranges of the record, and
// their order, are as before.
//
// Memory. Options.MaxHostBytes bounds the bytes that are not durable: of segments under way
// with the undos of their savepoints, of generations, and of outputs that have not been
// released. A row counts its key, its value and 32 bytes, an output the size that it came
// with. Each write reserves its bytes first, with one atomic operation, and returns [ErrFull]
// if they are not there; its caller waits with [Segment.WaitRoom] and repeats it. The bytes of
// a segment go with it: to a generation, until the record is durable, or back when the segment
// is discarded. These rules keep events that hold bytes and wait for bytes from waiting for
// each other:
//
//   - A write waits for an object's own limit only while bytes of the object that were handed
//     over are not durable. The segment's own bytes do not count, so the committer alone ends
//     the wait.
//   - Those that wait for the host's limit get room in the order in which they came.
//   - If the first of them finds no room, and nothing that was handed over is on its way to
//     the disk, it becomes the favored segment: it may exceed the limit, by [MaxOvercommit] at
//     most, until it is handed over or discarded or its life ends. One segment at a time is
//     favored. So there is always a segment that can come to its end, or a record in flight.
//   - Changes of the slot, and outputs without a size, do not wait: an event has few of them.
//     The slot writes of the runtime are such.
//
// So the bytes that are not durable are at most MaxHostBytes and MaxOvercommit, plus 32 for
// each slot write of the runtime itself, and what a favored segment holds whose life has ended
// and whose code still runs. An event whose code neither ends nor writes keeps its bytes; if
// it is the favored one, others wait until its life ends: the caller of WaitRoom bounds its
// wait.
//
// # What may not be assumed
//
// A Clean range is clean at that moment only. Two ranges' outputs have no order
// between them, even in one record. A snapshot taken after an output was released
// shows its writes; one taken after HandOver returned need not.
//
// # Goroutines and locks
//
// The committer is the only goroutine of this package, besides the call of
// Options.OnFail. Locks are taken in the order Range.mu, queue.mu or budget.mu; none is held
// while there is I/O, while an output is released or while a callback runs.
// Waiting is done on channels, so that a store works in a synctest bubble.
//
// # Identity
//
// A store has an [Identity], in DOHOST, in db/STORE and in the host record, which Open
// compares before it writes anything. Backup marks its copy, and the first Open of the
// copy draws a new fork: docs/decisions/0012 has the steps. An [Epoch] has the fork. A
// feed's header has the fork of its last append: the first append of another fork, and
// the first one after an import, draws a new name for the log, so that a [Position] in
// entries that this feed does not have is found out.
//
// # Keys
//
//	h                                      host record
//	a <class> 0 <due, 8 bytes> <name> 0    alarm index, of each class
//	b <class> 0 <name> 0                   alarms that are also delivered at boot
//	i <class> 0 <name> 0                   object half imported
//	p <class> 0 <name> 0                   parked alarms
//	q <due, 8 bytes> <class> 0 <name> 0    alarm index of suspects
//	o <class> 0 <name> 0 c <key>           collections: rows, indexes, feeds
//	o <class> 0 <name> 0 k <key>           row of the key-value space
//	o <class> 0 <name> 0 m s               alarm slot
//
// The keys of collections are
//
//	f <feed> 0                                      header of a feed
//	f <feed> 0 <offset, 8 bytes>                    entry of a feed
//	i <collection> 0 <index> 0 <index key> 0 <key>  index entry
//	r <collection> 0 <key>                          row
//
// Names have no control characters, so the zero byte ends them and keeps their
// order. Records of this package begin with a version byte, and an unknown one is
// [ErrFormat]. Values of rows are the caller's. Those of collections come behind a
// header of this package: the row's version, and its index entries, by which an
// update finds what to remove without asking the caller.
package objectstore

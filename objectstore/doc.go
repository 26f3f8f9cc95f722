// Package objectstore, a part of the engine without a compatibility promise, keeps the state of objects in one Pebble
// database: each object owns a key range, and no key of one object is visible to another. In a host only this package
// uses Pebble, with the options of internal/engine, and does not expose it.
//
// # How a write becomes durable
//
// Pebble makes an engine batch readable before the batch is synced, and cannot undo it. So Pebble gets no write
// before the committer takes the write's record:
//
//	Batch ── Commit ──▶ filling ── record taken ──▶ in flight ── synced ──▶ Pebble
//	(one turn)              (layers of the Range)                                    outputs leave
//
// A [Batch] holds an object's writes and outputs since the event took the turn. Commit merges the batch into the
// range's filling layer, which has the last value of each key and the outputs in order. One goroutine per store, the
// committer, swaps the filling layers of all ranges that have one into a record, makes the record durable, drops the
// layers from memory and releases their outputs. One record is in flight at a time. Until it is durable, commits
// gather in the next record: an object that overwrites a key a thousand times during one sync costs one row. Before
// it takes a record the committer yields once, so that goroutines that can commit now share the record.
//
// # Invariants
//
// History. Only Commit makes a batch history. Begin, Fence and Commit take the same lock, so they are ordered.
// Commits before a fence stay: the next incarnation reads them, and its outputs wait for them. Later commits of the
// fenced incarnation are refused. Layers belong to the range, not to an incarnation. Only FenceDropping undoes
// commits: it drops whole layers, as a power cut at that moment could have done.
//
// Reading. A read looks at the batch, filling, in flight and Pebble, in this order. A layer leaves
// memory only after its record is readable in Pebble, and an iterator copies the part in memory
// first and opens Pebble's iterator second, so a read sees a row in at least one place. After a
// DeleteAll, reads skip the layers below it.
//
// Durable layers. The layer that became durable last stays with the range if it is small, and reads of single keys
// look at it before Pebble, which has the same rows. A small object is read whole when it wakes: its rows in Pebble
// stay with the range as a durable layer that hides Pebble, and later layers are merged into it when they become
// durable. The rows are not kept if a layer became durable during the read. All of this assumes that only the range
// writes to the object: after any other write, such as an import, the caller must use a new Range.
//
// Age. Reads walk over deleted rows until they are compacted away. The committer makes the engine flush the memtable when the deletions in
// it weigh as much as a full memtable, and the engine compacts each flushed table into the level below. This bounds the walk. A queue
// deletes its first rows and scans from there, so a range remembers up to four spans of keys that had no rows in Pebble during a long
// walk, and later scans skip them. A span is kept only if no layer of the range has become durable since the scan looked at memory, and a
// row that becomes durable cuts it, so rows in Pebble are never within a span.
//
// Outputs. An output waits for all earlier commits of the object, by any incarnation, but not for later commits.
// It joins the newest undurable layer that is gated; a layer is gated if it holds a write without NoWait. If
// there is no such layer, the output leaves immediately. A Sync output waits for NoWait writes as well. The
// outputs of a range are always released in the order of their commits: one goroutine releases at a time, and an
// output that could leave still queues after the outputs that are waiting or leaving.
//
// Durable views. Only the committer writes, and a [Snapshot] is taken between two records: it contains nothing that a
// power cut could undo. A range's own reads do return such state, so their outputs wait.
//
// DeleteAll. The calling goroutine reads up to 1,000 keys of the object, including the keys of earlier commits. The
// record deletes these keys, or the whole range if there are more keys or if another commit intervened. So a record is
// made without reading rows, and its size counts deletions.
//
// Alarms. An object's slot and its entries in the alarm indexes change in one record. When the record is built, it
// removes the entry of the slot that Pebble holds then: a slot set a thousand times in between costs one entry. A
// slot has one entry: in the index of parked alarms, in the index of suspects if the slot has a charge, or in the
// index of its class. It has a second entry in the start index if it has AtStart and is neither a suspect nor
// parked.
//
// Failure. A failed sync fails the store, not just an object: the log's error is final, and the unsynced writes stay
// visible to readers. So the store writes nothing more, releases every output with [ErrFenced], refuses commits, and
// closes the database. It does the same if a log file cannot be written, closed or created. The next Open may find
// the record in flight. The process ends if the directory of a new log file cannot be synced, or if the engine panics
// during an append or a flush. Any other panic on the committer fails the store: a store that continued would serve
// data that is not on the disk.
//
// Damage. A damaged block makes only the reads that need it fail: see [ErrDamaged]. The store retries the engine's
// failed background work with pauses, and does not fail. While a flush fails, Put returns [ErrNoSpace] with the
// cause, before the engine needs a log file that it cannot make. Open returns the error of a flush that fails during
// Open.
//
// Before a record writes anything it reads the alarm slots that it replaces, and nothing else. If a slot lies in a
// damaged block, the new slot replaces it, and the old index entries remain until they are due. If a slot cannot be
// read for another reason, only its range fails: the store drops the range's layer in flight and the younger layer,
// as a power cut could have done, takes away the range's owner, releases the outputs with [ErrFenced], and calls
// Options.OnDropped. The other ranges of the record, and their order, are not affected.
//
// Memory. Options.MaxHostBytes bounds the bytes that are not durable: in open batches and the undos of their
// savepoints, in layers, and in unreleased outputs. A row counts as its key, its value and 32 bytes, and an
// output with a size as that size and 32 bytes. Each write first reserves its bytes, with one atomic operation, and returns [ErrFull] if
// the limit is reached; its caller waits with [Batch.WaitMemory] and repeats the write. A batch's bytes move to
// its layer until the record is durable, or are returned when the batch is discarded. These rules prevent
// deadlocks between events that hold bytes and wait for bytes:
//
//   - A write waits for an object's own limit, MaxObjectBytes, only while committed bytes of the object are not durable. The batch's
//     own bytes do not count, so the committer alone can end the wait.
//   - Batches that wait for the host's limit get room in the order of their arrival.
//   - If there is no room for the first of these batches, and no commit is on its way to the disk, this batch
//     becomes the favored batch: it may exceed the limit, by [MaxOvercommit] at most, until it is committed or
//     discarded or its incarnation ends. One batch at a time is favored. So there is always a batch that can
//     finish, or a record in flight.
//   - Changes of the slot, also by the runtime, and outputs without a size do not wait, because an event has few of
//     them.
//
// So the bytes that are not durable are at most MaxHostBytes and MaxOvercommit, plus 32 for each slot write of the
// runtime itself, plus the bytes of favored batches of ended incarnations with code that still runs. An event that
// neither ends nor writes keeps its bytes. If its batch is the favored one, others wait until its incarnation ends,
// so the caller of WaitMemory bounds its wait.
//
// # Not guaranteed
//
// The result of Clean holds only at that moment. Outputs of two ranges are not ordered relative to
// each other, even in one record. A snapshot taken after an output was released shows the output's
// writes; a snapshot taken after Commit returned need not.
//
// # Goroutines and locks
//
// The committer is a permanent goroutine of each store. With Options.Ship the shipper is a second one. With Options.Shared
// there are two more: one writes bases, and one waits for the loss of the lease. The other goroutines are short: they call
// callbacks, read an archive, or release outputs after the layer of a range was dropped or an output panicked.
//
// Locks are taken in the order Range.mu, queue.mu or budget.mu. They are not held during I/O, while an output is
// released or while a callback runs. The mutex of spaceGuard is held while OnSpace runs, which is a function of package runtime.
// Waits use channels, so that a store works in a synctest bubble.
//
// # Identity
//
// A store has an [Identity], in DOHOST, in db/STORE and in the host record. Open compares the three before it writes
// a row. It reads the host record with the engine open, which may have moved the rows of its log to tables. Backup marks its copy, and the first Open of the copy draws a new fork: docs/decisions/0012 has the
// steps. An [Epoch] contains the fork. A feed's header contains the fork of its last append: the first append under
// another fork, and the first append after an import, draw a new name for the log, so a [Position] in entries that
// this feed lacks is detected.
//
// # Shipping
//
// With Options.Ship each record gets a frame: its operations and its place in the history, with a link to the previous frame
// (internal/frame). The committer adds the frame to the record's own engine batch, so it is durable if and only if the record
// is. The shipper, on its own goroutine, reads the frames of durable records and puts them into the archive, and the next
// record deletes the frames that the archive has. The committer never waits for the shipper, and the shipper never reads
// beyond the last durable record, so the archive has a prefix of the history. The names in the archive determine where
// shipping continues after a crash. [Restore] verifies everything that it replays, and the restored directory does not become
// a store until the file DOHOST is renamed. docs/decisions/0031 has the reasons, and the order of the steps.
//
// # Standby
//
// A [Standby] follows an archive in a directory of its own: it begins with the newest base, and then verifies and applies the records as
// they come. Its store is read-only, and its directory is no store for a host before it is promoted. The comment of Standby has the
// invariants. docs/decisions/0041 has the reasons.
//
// Reads. A folder on a network may never answer a read, and a system call cannot be cancelled. So each read of the archive runs on a goroutine
// of its own. The standby waits until the read ends or its context ends: the caller, Close, PromoteAsIs or a limit of five minutes ends the
// context. Two seconds after that the standby abandons the goroutine, which writes nothing that another goroutine reads. Until that read ends,
// all other reads are refused with the name of the archive and of the object, so at most one goroutine of a standby is stuck. After ten
// seconds the status gives that name as the reason to wait, and Promote refuses with it.
//
//	read begun ──▶ ended ──▶ next read
//	     └─ context ended ──▶ 2 s ──▶ goroutine left ──▶ reads refused ──▶ ended ──▶ next read
//
// The first base. Its database is neither logged nor a store before its last row, so it cannot be continued by another process. Within a process
// the database stays open over a read that fails and over a disk without the reserve, and the next pass continues with the part that
// failed. The delay of that pass is doubled after each failure without a new part, up to a minute, and has jitter.
//
// # Shared log
//
// With Options.Shared the history is in a shared log (package sharedlog), and the engine is a cache of it. A record gets a frame, as
// for shipping, but the frame goes to the log and not into the engine:
//
//	record encoded ──▶ frame appended to the log ──▶ applied to the engine, unsynced ──▶ outputs leave, if the lease is valid
//
// The engine batch of a record also sets the row l, the record's place in the log. The engine's own log keeps the order of its
// batches, so after a crash the engine has a prefix of the history, and the row names its end. Open replays the records after
// that end, and verifies their chain. It also compares the record that the row names: if the log has a different record there, or
// none, the log has lost records, and Open refuses it with the record's number.
//
// Each step has a reason. The engine gets no record that the log might refuse, because the engine cannot undo a record. A
// record's number is the number of the last confirmed record plus one: a host that predicted numbers could append a record after
// its successor's records. An append with an unknown outcome is repeated with the same bytes, or the store fails. The generation
// comes from the lease, and a host's first record contains it: a generation from the directory could be assigned twice. Outputs
// are checked against the lease when they are released, because a former owner may have read old state.
//
// When the lease is lost, the store fails with ErrFenced, as after a failed sync. The directory remains a good cache.
//
// # Bases
//
// Without bases the log, and the replay of a host without a directory, would grow forever. When the records since the last base exceed
// the size of that base plus Shared.BaseAfter, a goroutine of the store writes a base to the log: all rows of a snapshot, in parts like
// the parts of a shipped base (internal/frame). It takes the snapshot while no record is in flight, so the base is the state after
// exactly one record. The committer does not wait for the rest. Then the log purges the records before the base:
//
//	snapshot after record n ──▶ base n published ──▶ records before n purged
//
// Nothing is purged until the base is certainly published: if that is unknown, the host writes another base. The log
// refuses both steps to a former owner. A failure is counted and the steps are retried later; it does not fail the store.
//
// Open continues from the directory if the log still has the record that the row l names, and all records after it. Otherwise it
// reads the base: in one batch it deletes all rows of the engine and sets the number in the row l to 0; then it writes a batch
// for each part, the last with the row l of the base. So Open recognizes an engine with a partial base, and reads the base again.
// Before it deletes rows of an earlier host, it verifies the whole base. The last part must have the sum of the log's record with
// its number, which is never purged before a newer base: so the base and the records after it are one history.
//
// # Replacing an object
//
// [Store.ArchivedState] reads the state of an object at an earlier moment from the store's own archive, and [Batch.Replace]
// makes a batch of it: the deletion of all rows and the alarm, followed by the old rows and the old alarm. A batch is never
// split, so one record contains both. After a crash the object has either the one state or the other. A state that is larger
// than a batch is refused before anything is written.
//
// The caller must keep this order. It reads the state, while the object may still run. It becomes the owner of the range, and
// waits until all commits of earlier owners are durable. It takes a [Bookmark], which names a record before the replacement:
// all replaced data is in that record or an earlier one. Then it commits the replacement.
//
//	state read ──▶ range owned ──▶ earlier commits durable ──▶ bookmark ──▶ replacement committed ──▶ durable
//
// Record numbers grow, and the archive is a prefix of the history. So the state before the
// replacement, and every state before that, can be restored like any other.
//
// The rows go through the range, and its readers see them like other commits. Two parts differ from the old state. The alarm
// gets a new generation, so no delivery of another alarm runs or ends it. The header of a feed loses its fork: the next entry
// is in a new log, and a position in entries that the feed no longer has is detected. Rows have the versions of the old
// state, and later writes assign these versions again.
//
// The state is read in the directory restore.tmp of the store, which Open removes after a crash.
//
// # Keys
//
//	f <number, 8 bytes>                    frame of a record
//	g                                      limit of the numbers of frames
//	h                                      host record
//	l                                      the last record of the shared log, or of a standby's archive, that is applied
//	a <class> 0 <due, 8 bytes> <name> 0    alarm index, of each class
//	b <class> 0 <name> 0                   alarms that are also delivered when the host starts
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
// Names have no control characters, so the zero byte ends them and keeps their order. Records of this package begin
// with a version byte, and an unknown one is [ErrFormat]. Values of rows are the caller's. Rows of collections
// follow a header of this package: the row's version, and its index entries, so that an update finds the entries to
// remove without asking the caller.
package objectstore

// Package randwatch draws programs for collections that are watched and for streams of chunks at random, runs them, and compares each step
// with a model.
//
// A [Program] is a list of instructions for one object, which has a collection of notes and generations of chunks. A note may have several
// places in an index, or none, and a size that makes a list have several pages. Clients watch the notes by several queries while the
// programs run, and end a watch anywhere.
//
// The model is a value in the object's own storage, and each instruction changes it in the batch of its writes. So the end of an
// incarnation drops a change of the model together with the change of the notes, and the two must agree whenever an event has the turn.
// The model shares no code with packages dohost and chat.
//
//   - the rows that a watch folds are those of its query at each position, in their places and versions. All of them are durable, also if
//     the loop of the watch writes notes itself: the durable version of the model is read from the disk
//   - a watch begins again only after a DeleteAll, or if the feed has dropped changes since its position. A watch that has nothing to
//     report has a DeltaReady, and repeats it after Heartbeat
//   - a chunk that is stored does not change, and the indexes of a generation are dense. A generation has nothing after its finish
//   - a writer of Replay writes nothing for equal chunks, and ends with a conflict at another one. A writer of Continue begins after the
//     last chunk, and does not write over that of a second writer. A chunk that is not stored gets no index, and its text counts
//   - a writer writes nothing after the rollback of a Transaction that it has written in
//
// The [Observer] lives outside of the object. It has the acknowledged version of the model, which a new incarnation must find, and the notes
// at each position of the feed. When the object is at rest, each watch has the rows of its query.
//
// # Limits
//
// All notes decode, and no program changes a query of a watch. A StreamTo gives up the turn between two chunks, so the model accepts any
// number of its chunks after an interruption.
package randwatch

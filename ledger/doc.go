// Package ledger records operations with an outside effect, such as a charge, a mail or a run in a sandbox, before their call
// begins and after it returns. After a crash, each operation is completed, failed or unknown. The ledger never reports an
// unknown outcome as known.
//
// [Do] performs one operation of a [Kind]. The kind answers four questions: which arguments make two operations the same
// ([Kind].Same), whether a call with an unknown outcome may be repeated ([Policy]), how to ask the other side ([Kind].Find), and
// which text a caller gets ([Kind].Unknown). The ledger uses only the public API of package dohost, so it works in any object: a
// plain one, an agent, or a chat.
//
// # The states of an operation
//
//	Do ─▶ row Running, durable ─▶ call ─▶ result ─────────────────▶ Completed: Do returns the stored result until the row expires
//	                               │└──▶ error with NoEffect ─────▶ Failed: the next Do calls again
//	                               └──▶ any other error, or the end of the incarnation:
//	                                      PolicyAtMostOnce ───────▶ Unknown, until an operator resolves it
//	                                      PolicyIdempotent ───────▶ another call with the same ID; Unknown after MaxAttempts
//	                                      PolicyReconcile ─ Find ─▶ Completed, another call, Failed after MaxAttempts, or Unknown
//
// # Rules
//
//  1. The row of an operation is durable before its call begins. The row commits with the batch that the Await of the call
//     commits, so it adds a sync only if the handler has written nothing else since it acquired the turn.
//  2. Do writes the result in the first batch after the call. That batch commits when the handler
//     releases the turn: a panic before that interrupts the operation. The output gate holds every
//     output of the object until the result is durable.
//  3. An error of a call is not proof that the call had no effect. Only an error that is marked with [NoEffect], or that
//     [Kind].NoEffect accepts, is such a proof. A timeout and a broken connection are not. The proof covers one call: if the
//     outcome of an earlier call of the operation is unknown, the operation does not fail.
//  4. A Running row without a Do in progress in this incarnation was interrupted. No lease or timeout decides this, and
//     elapsed time never makes a repetition safe.
//  5. The [ID] of an operation depends on a secret of the object, the kind, the position ([dohost.WorkPosition]), the scope, and
//     the value that Same returns. It does not depend on the time, on the attempt, or on the incarnation.
//  6. An unknown operation is repeated only if its policy is PolicyIdempotent and its MaxAttempts allow it. Otherwise
//     only an answer of Find or a decision of an operator ([ResolveDone], [ResolveNotDone]) ends it.
//
// A call of another object by [dohost.Invoke] with the ID as its CallID is an operation with PolicyIdempotent: that object runs it once
// in the retention period of its result, also after the calling object has moved to another machine.
//
// Package ledger/ledgertest tests whether the declared policy of a kind is true.
//
// When an incarnation ends, the request of its call may still be in transit, and may take effect later. So the outcome of the
// call is unknown, and the policy applies.
package ledger

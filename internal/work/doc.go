// Package work is the state machine of durable work: of fibers, the hooks that decide about them, schedules, queue items,
// chat replies, and operations with an outside effect. It has no I/O, no clock and no goroutine, and imports no package of
// the module except internal/backoff, which is stateless. Packages agent, chat and ledger store an [Item] in each row, send
// it events, and carry out the effects.
//
// # States
//
//	         Due, Begun            Returned
//	Waiting ────────────▶ Running ──────────▶ Ended, or Notifying until the end hook has returned
//	   ▲                  │  ▲  │               ▲    ▲
//	   │       interrupted│  │  │Cancel,        │    │ Resolve
//	   │                  ▼  │  │Replace        │    │
//	   │           Recovering┘  │               │    │
//	   │             │     │    ▼               │    │
//	   │             │     │  Cancelling,       │    │
//	   │             │     │  Replaced          │    │
//	   │             ▼     └────────────────────┘    │
//	   └────Restart──Dead, Orphaned ─────────────────┘
//	                  └──Retry──▶ Recovering
//
// An item is open in the states Waiting, Running and Recovering. An item is interrupted when its owner (an incarnation, or a
// call of a reply's handler or of an operation) has ended before the item. A later incarnation finds such items by comparing
// their owners with itself. So there is no list of interrupted items that could be lost.
//
// # Events
//
// The columns are the states: W Waiting, R Running, C Recovering, N Notifying, E Ended, O Orphaned, D Dead, X Cancelling,
// P Replaced. A ' marks a state of an item with an ended owner, and W0 is a waiting item without an owner. An entry is
// the set of states that may follow. The other characters are results that leave the item unchanged:
//
//	h  call the hook
//	=  wait
//	-  delete the row
//	.  refused: the item has changed since the sender of the event read it
//	!  impossible: the driver does not send this event in this state
//
// The entries of each event cover all policies:
//
//	              W  R   W'       R'       C        N   E  O  D  X   P  X' P' W0
//	Begun         R  !   .        .        .        .   .  .  .  !   !  !  !  .
//	Due           !  !   RNEODh=- RCNEODh=- RNEODh=- Eh= !  !  !  !   !  -  R  R=
//	Stuck         !  R   !        !        !        !   !  !  !  !   !  !  !  !
//	Progressed    W. R.  .        .        .        .   .  .  .  .   .  .  .  .
//	Returned      .! WRNE. .      .        .        .   .  .  .  -.  W. .  .  .
//	HookCalled    .  .   C        C        C        N   .  .  .  !   !  !  !  .
//	HookRunning   .  .   .        .        C        N   .  .  .  .   .  .  .  .
//	HookReturned  .  .   .        .        CNED-    NE  .  .  .  .   .  .  .  .
//	Decided       .  .   .        .        RNE      .   .  .  .  .   .  .  .  .
//	Cancel        E- NEX- E-      NE-      NE-      .   .  .  NE- .  NEX- . NE- E-
//	Restart       .  .   .        .        .        W.  W. W. W. .   .  .  .  .
//	Retry         .  .   .        .        .        .   .  .  C  .   .  .  .  .
//	Resolve       .  .   .        .        .        .   .  NE NE .   .  .  .  .
//	Replace       W  P   W        W        !        !   !  !  !  P   P  W  W  W
//
// The test of this package compares this table with Step, for every state, event and policy.
//
// # Charges
//
// An attempt is charged before it runs. An interruption (the owner ended) is charged to Attempt and Stalls, in the batch that
// resumes the item. An error is charged to Attempt and Failures when the code returns it. With Policy.RetryDelay the item then
// waits for its time without an owner. A run that postpones its item (Event.Delay) charges nothing. HookCalled charges a hook
// call to Calls before the call begins. Progress, which is a new checkpoint or a new chunk of a reply, resets Stalls and Calls
// to zero. So an item or a hook that ends its process is tried only as often as the policy allows.
//
// A result counts only for its own run. The owner numbers the runs that it starts, across all its items: the
// result of a deleted item must not count for a new item with the same name.
package work

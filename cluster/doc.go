// Package cluster runs one set of objects on several machines. The objects are divided into cells. A cell is one host with its own
// directory and its own [sharedlog.Log], and one node at a time has it. Every node accepts every request, and passes it on to the node
// that has the object's cell.
//
//	       Table: members with expiry, plan
//	      /            |             \
//	 Node A         Node B         Node C        each plans, opens and closes cells
//	cells 0 3 6    cells 1 4 7    cells 2 5      a cell: acquire its log, open a host, serve
//	   |   \__________/ | \________/  |
//	 Router           Router        Router       a request: the cell of its object, here or on another node
//
// # Cells
//
// The number of cells is fixed when the first node writes the first [Plan]; a node with another number does not start. The cell of an
// object is a hash of its class and name: see [CellOf]. The function is part of the format of the data.
//
// # Ownership
//
// The plan is advisory: only the log grants ownership. It names the node that should have a cell (Owner), and the node that has reported to serve it (Holder). A
// node serves a cell from the moment that its host is open on a lease of the cell's log until it begins to close that host. The fence
// is the log's: it refuses the appends of a former owner, and its lease is invalid before another acquisition can succeed. So a wrong
// plan, a wrong table, a wrong clock or a wrong address may make a cell unavailable. They never make two hosts confirm writes of
// one cell.
//
// # Order
//
//	 move of a cell from A to B                         take-over of a cell of A, which has ended
//	1 the planner writes Owner = B                      1 the record of A expires, or A deletes it
//	2 A stops accepting requests for the cell           2 the planner writes Owner = B, Holder = none
//	3 A closes the host, which releases the lease       3 B acquires the log when the lease of A has ended
//	4 A writes Holder = none                            4 B opens a host, and serves
//	5 B acquires the log, opens a host, and serves      5 B writes Holder = B
//	6 B writes Holder = B
//
// B waits for the log from step 1 of a move on, so steps 4 and 5 may occur in any order. All changes of the plan are compare-and-set
// on its revision, so the plans form one sequence. The member with the lowest id is the planner, so that writes seldom conflict; two
// planners would do no harm. A node writes only its own id as a Holder, only if it is the Owner in the plan that it replaces, and
// removes only its own id. The planner removes the ids of nodes that are not members.
//
// # Invariants
//
//   - At most one host can append to the log of a cell, even if the plan is wrong. The documentation of a log states when two leases can
//     be valid at one time.
//   - A node that opens a cell is its Owner in the newest plan that it has read. It closes the cell when a newer plan has another Owner.
//   - A node that can use the table but not the log of a cell gives the cell back after a while, and gets no cells for some time. The
//     while begins when no other node reports to serve the cell, and is longer than a regular Open and Close: see Options.ReleaseTime. A
//     node that has the log keeps the cell, however long its host needs to open. It also keeps a cell whose directory it cannot open: the
//     directory may have records that the log has lost.
//   - A node that could not renew its record until the record may have expired closes all of its cells, so that they are free for the
//     nodes that the plan then names.
//   - The cells of a node that has ended are planned anew in one step. Other changes of owners, to balance the nodes and to drain one,
//     move one cell at a time: the next move is planned when all cells are served by their Owners.
//   - Without further changes of the members the numbers of cells of any two nodes soon differ by at most one, and no more cells
//     have moved than that needs.
//   - A request is passed on at most two times, and reaches a host at most once. The router sends it again only if no connection could
//     be made, so that no byte of it was sent.
//   - A request counts as passed on by a node only with a signature by the secret of the cluster. A request with a wrong one is refused.
//   - An object exists in its own cell only. A host of a cell refuses to wake an object of another cell: see dohost.Options.Holds.
//
// # Calls of objects
//
// A [Node] is the dohost.Remote of its hosts: dohost.Invoke calls an object of another cell through it. InvokeRemote is one attempt, and
// dohost.Invoke repeats it.
//
//		object, in its host          writes of the caller are durable
//		Node.InvokeRemote            the cell of the callee: here, or on the node that serves it by the newest plan read
//		POST, CallHeader             signed for the id of that process, the call and the sum of its argument
//		router of that node          verifies the signature, then reads the argument, then its sum
//		Host.AnswerCall              a stored result, or a run; the answer leaves when it is durable with the effects
//
//	  - Only a node that knows the secret can make such a call, and only of an exposed method. A captured request gives its sender the stored
//	    result; it runs again only at the same process and after the retention period of the result.
//	  - A node never passes a call on. A request that arrives late, since a node was suspended, is refused there or by the fence of the log.
//	  - An attempt ends after 20 s, and when the other node is not a member any more for 30 s. At most 256 attempts of a node wait for one
//	    object, and 2048 in all.
//
// # Time
//
// If a node ends without Close, its record expires after the time to live of the table, the planner reads that at its next tick, and the
// new owner at its own or by the hint of the table. The leases of the logs end concurrently. The package compares no clocks of
// different machines.
//
// # Not here
//
// dohost.Call of an object in another cell returns dohost.ErrElsewhere and has no effect. WebSockets end when their cell moves or when
// the node that accepted them ends, and clients connect again. Each node lists and inspects its own cells.
package cluster

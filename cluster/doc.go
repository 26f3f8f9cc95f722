// Package cluster runs one set of objects on several machines. The objects are divided into cells. A cell is one host with its own
// directory and its own [sharedlog.Log]; one node at a time has the cell. Every node accepts every request, and passes it on to the
// node that has the object's cell.
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
// The plan is advisory: only the log grants ownership. The plan names the node that should have a cell (Owner) and the node that has
// reported serving it (Holder). A node serves a cell while it has a host open under a lease of the cell's log, until it begins to close
// that host. The log does the fencing: it refuses the appends of a former owner, and the former owner's lease is invalid before another
// acquisition can succeed. So a wrong plan, a wrong table, a wrong clock or a wrong address may make a cell unavailable, but can never
// make two hosts confirm writes of one cell.
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
// B starts waiting for the log at step 1 of a move, so steps 4 and 5 may occur in either order. All changes of the plan are
// compare-and-set on its revision, so the plans form one sequence. One member is the planner, so writes seldom conflict; two planners
// would do no harm. A node writes only its own id as Holder, and only if the plan that it replaces names it as the Owner; it removes only its
// own id. The planner removes the ids of nodes that are not members.
//
// # Planner
//
// The planner is the member with the lowest id among those with cells: the plan names them as an Owner or a Holder. So a node that has just
// started does not plan while a member has cells, and no take-over waits for that node. If no member has cells, each member plans, and the
// first plan to be written gives cells to members.
//
// If the table is unavailable for longer than the time to live, all records expire. Then the nodes renew them one after the other, and a node
// may start before them. The first of these nodes must not become the owner of all cells, which would then move back one at a time. So a
// planner pauses while nodes are absent: an Owner or a Holder is not a member, and does not drain. A pause ends after half the time to live.
// By then each running node has renewed its record: an attempt that was lost in an election ends after a third of the time to live, and the
// next one begins within a sixth.
//
//	a node with cells that has renewed an expired record    pauses after that renewal, once in two times to live
//	a node with cells that has not lost its record          does not pause, also if it has just started
//	a node that has started while no member has cells       pauses after its first renewal
//
// The table does not show why all records have expired: the nodes may have been killed. So the first node to start then
// pauses as well: it gets the cells when half the time to live since its first renewal is over, and the records of the
// killed nodes have expired. A new cluster has no Owners, and nodes that were shut down together have drained, so the first
// node to start does not pause.
//
// # Invariants
//
//   - At most one host can append to the log of a cell, even if the plan is wrong. The documentation of a log states when two leases can
//     be valid at the same time.
//   - A node opens a cell only if the newest plan that it has read names it as the Owner. It closes the cell when a
//     newer plan names another.
//   - A node that can use the table but not the log of a cell gives the cell back after a waiting period, and gets no cells for some
//     time. The period begins when no other node reports serving the cell, and is longer than a regular Open and Close: see
//     Options.ReleaseTime. A node that has the log keeps the cell, however long its host takes to open. It also keeps the cell if it
//     cannot open the cell's directory, which may contain records that the log has lost.
//   - A node that has not renewed its record for five sixths of the time to live begins to close all of its cells, so
//     they are free soon after the record expires and the plan names other nodes.
//   - The planner reassigns all cells of an ended node in one step. Other changes of owners, to balance the nodes or to drain one,
//     move one cell at a time: the next move is planned once all cells are served by their Owners.
//   - If the members stop changing, the numbers of cells of any two nodes that neither drain nor back off soon differ by at most one, and
//     only as many cells move as that requires.
//   - A request is passed on at most two times, and reaches a host at most once. The router resends it only if it could not connect,
//     so no byte of the request was sent.
//   - Only a signature with the secret of the cluster proves that a node passed a request on. A wrong signature is
//     refused.
//   - An object exists in its own cell only. A host of a cell refuses to wake an object of another cell: see dohost.Options.Holds.
//
// # Calls of objects
//
// A [Node] is the dohost.Remote of its hosts: dohost.Invoke calls an object of another cell through it. InvokeRemote is one attempt, and
// dohost.Invoke repeats it.
//
//	object, in its host          writes of the caller are durable
//	Node.InvokeRemote            the cell of the callee: here, or on the node that serves it by the newest plan that it has read
//	POST, CallHeader             signed for the id of that process, the call and the sum of its argument
//	router of that node          verifies the signature, then reads the argument, then its sum
//	Host.AnswerCall              a stored result, or a run; the answer leaves when it is durable with the effects
//
// These rules hold:
//
//   - Only a node that knows the secret can make such a call, and only to an exposed method or a procedure. Replaying a captured request
//     returns the stored result; the call runs again only in the same process and after the retention period of the result.
//   - A node never passes such a call on. If a node was suspended and a request arrives late, the node or the fence of the log refuses it.
//   - An attempt ends after 20 s, or when the other node has not been a member for 30 s. At most 256 attempts of a node wait for one
//     object, and 2048 in all.
//
// # Durable sockets
//
// A durable socket (dohost.SocketHandlers.Durable) belongs to an object. The connection of its client belongs to the node that the client
// has connected to, its edge, and does not end when the cell of the object moves to or from that node. The edge and the object exchange
// messages over a link, one for all sockets of the object at that edge.
//
//	client          edge                                            node of the object
//	handshake  ->   number N, opening
//	                request with RelaySocketHeader "EDGE N"    ->   the object accepts: a row
//	                                                           <-   status 200 with dohost.RelayHeader
//	101        <-   open
//	                link: all sockets, next number, last position
//	                                                           ->   LinkSockets
//	frame      ->   input 1: kept until it is received         ->   Deliver 1
//	                                                           <-   received 1
//	frame      <-   queue of the client                        <-   output, position
//	                acknowledgment of the position             ->   Acknowledge
//
// The link is a call of the host on the same node. To another node it is a WebSocket with LinkHeader: see the messages in linkwire.go. The
// edge makes a new link when one has ended, to the node that serves the cell by then.
//
//   - The numbers of sockets grow, and the name of an edge is the id of its process, so no two sockets have the same name.
//   - The edge registers a socket before it sends the handshake. One lock guards the next number and the list of
//     sockets that a link sends. So an object can end each socket that has a lower number and is not in the list.
//   - Only the newest link of an object changes its sockets: outputs of an earlier one are ignored.
//   - The edge drops an output unless its position is greater than the last one of the same history, so each reaches a
//     client once.
//   - Inputs of a socket have numbers without gaps. The edge keeps them until the object acknowledges them, and each link delivers them again, in
//     order. The end of the connection is the last input. The edge forgets a socket when the object has acknowledged its end, or does not have it.
//   - If 5 links end after they have delivered an input that is not acknowledged, the edge drops all inputs of the socket, and closes its
//     client with 1011.
//   - If a handshake ends without an answer, the object may have accepted it. So the edge delivers the end of the
//     socket. If it has no other socket of the object, there is no link, and the object ends the socket after a time
//     without one.
//   - If there is no link for a minute, the edge closes the clients with 1012, and the object ends the sockets. Close of a node closes its clients
//     with 1012, too, and delivers the ends for at most 5 s.
//   - Only a node that knows the secret can link or name a relayed socket. The node of the object sends a random text with its response, and
//     the edge signs that, so a captured request makes no link.
//
// The bounds of an edge. A frame from a client counts 128 bytes more than its data for its socket, and the frames of a client 4 KiB less for the
// node; a frame for a client counts 64 bytes more:
//
//	sockets of an object              32,768        then the status 503
//	a handshake                       64 KiB        likewise
//	all handshakes of an object       128 MiB       likewise
//	all handshakes                    256 MiB       likewise; the first 8 KiB of each do not count
//	inputs of a socket                1 MiB         then the edge reads no further frame of the client
//	inputs in flight of a socket      64 KiB        or one input; then the others wait
//	frames for a client               32 MiB        then the client is closed with 1013; after 10 s without progress at 1 MiB
//	outputs for an edge elsewhere     8 MiB         or one output; then the link ends after these
//	frames from all clients           256 MiB       or 4 of the largest buffers; then a frame waits 10 s, and its client is closed with 1013
//	frames for all clients            256 MiB       then the clients that read slowest are closed with 1013
//
// The bound for frames from clients is divided, as in a host: see package internal/budget. The clients of one object use at most three
// eighths of the bound, and the bytes of one client, so frames for other objects are read although a few acknowledge nothing. The
// slowest client has the largest product of its share of the waiting bytes and the age of the oldest of them: see sendBudget. A frame
// for many clients counts once, and each of them has an equal share.
//
// # Time
//
// If a node ends without Close, its record expires after the time to live of the table, the planner sees that at its next tick, and the
// new owner sees the new plan at its own next tick or on a hint from the table. Concurrently, the leases of the logs expire. The
// package compares no clocks of different machines.
//
// # Not here
//
// dohost.Call of an object in another cell fails with the code "elsewhere" (dohost.DescribeError) and has no effect.
// WebSockets that are not durable end when their cell moves. All end with the node that accepted them. Clients connect
// again. Each node lists and inspects its own cells.
package cluster

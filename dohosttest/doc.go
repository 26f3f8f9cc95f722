// Package dohosttest shows whether objects survive eviction: anywhere, not somewhere.
//
// [EveryPoint] runs a scenario once and counts the points at which an incarnation can
// end. Then it runs it again for each point and way of ending, lets recovery come to
// rest, and asks whether all is well. [Simulate] draws workloads and endings by seed,
// and [Linearizable] asks of drawn calls whether some order of them, one after another,
// explains all answers. [Run] opens a host for a test of any other kind. All use a host
// on a file system in memory, which can crash, in a bubble of
// [testing/synctest]: hours pass in milliseconds, alarms, idle eviction and back-off
// included.
//
// # The same run each time
//
// Every goroutine of a host waits for leave before it does what others can notice. When
// all of them wait, one goes on, chosen by its name: what it is about, never when it
// came. So a scenario passes the same points in each run, on one core or on many. What
// is left to Go's scheduler is what goroutines do to each other without the host: two
// that share a variable in a function of one Await, or bare goroutines in a scenario
// that call the same method of the same object at the same moment. For the latter there
// is [Host.Client].
//
// # Rules inside a bubble
//
// Nothing real: no sockets (net.Pipe is fine), no host that was opened outside, no
// goroutine that never ends. Do not call synctest.Wait: the scheduler does, and it must
// be alone. Time passes when all stand still; [Host.Advance] and [Host.Rest] let it.
package dohosttest

// Package dohosttest tests whether objects survive eviction at every point, not only at some.
//
// [EveryPoint] runs a scenario without endings and counts the points where an incarnation can end.
// Then it runs the scenario again for each point and each ending that is possible there, waits for
// the end of recovery, and checks the result. [dohost.EndKill] is possible only while a record is on
// its way to the disk. Between two incarnations only the process can end. [Simulate] draws workloads
// and endings by seed, and [Linearizable] checks whether some sequential order of drawn calls
// explains all answers. [Run] opens a host for a test of any other kind. All use a host that can
// crash, on a file system in memory, in a bubble of [testing/synctest]: hours pass in milliseconds,
// with alarms, idle eviction and backoff.
//
// # The same run each time
//
// Every goroutine of a host waits for permission before each step that others can observe. When all
// of them wait, the scheduler lets one proceed. It chooses by the name of the step, which does not
// depend on when the step was requested. So a scenario passes the same points in each run, on one
// core or on many. Only Go's scheduler orders goroutines that interact without the host: two
// goroutines that share a variable in one Await's function, two with their own timers due at the
// same moment, or bare goroutines in a scenario that call the same method of the same object at the
// same moment. Use [Host.Client] instead of bare goroutines, and [dohost.Sleep] instead of timers:
// the scheduler orders the ends of sleeps, both of clients and in the functions of Awaits.
//
// # Rules inside a bubble
//
// Use nothing real: no sockets (net.Pipe is fine), no host opened outside of the bubble, no
// goroutine that never ends. Do not call synctest.Wait: the scheduler calls it, and must be the
// only caller. Time passes when every goroutine waits; [Host.Advance] and [Host.WaitIdle] let it.
// A run fails after 20 s of real time without a step, and after 262,144 steps.
package dohosttest

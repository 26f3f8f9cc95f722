package agent

// The handles have the methods for existing durable work. They are small values, which may be copied and kept for
// as long as the incarnation; their methods need a context that holds the agent's turn. Functions create work,
// most of them with type parameters: [StartFiber], [RunFiber], [Schedule], [Enqueue] and [SubAgent].
type (
	// Fibers lists, finds, cancels, restarts and deletes the fibers of an agent.
	Fibers struct{ fibers *fibers }
	// Schedules lists, finds and cancels the schedules of an agent.
	Schedules struct{ jobs *jobs }
	// Queue lists and cancels the items of an agent's queue.
	Queue struct{ jobs *jobs }
	// DeadLetters lists, retries and deletes the queue items and schedules that failed for good.
	DeadLetters struct{ jobs *jobs }
	// Rows lists and retries the rows of [OnRows] whose calls run, wait for a retry, or are parked.
	Rows struct{ work *rowWork }
	// SubAgents lists and deletes the sub-agents of an agent.
	SubAgents struct{ c *core }
)

// Fibers returns the handle of the agent's fibers. Any goroutine.
func (a *promoted) Fibers() Fibers { return Fibers{&a.core.fibers} }

// Schedules returns the handle of the agent's schedules. Any goroutine.
func (a *promoted) Schedules() Schedules { return Schedules{&a.core.jobs} }

// Queue returns the handle of the agent's queue. Any goroutine.
func (a *promoted) Queue() Queue { return Queue{&a.core.jobs} }

// DeadLetters returns the handle of the agent's dead letters. Any goroutine.
func (a *promoted) DeadLetters() DeadLetters { return DeadLetters{&a.core.jobs} }

// Rows returns the handle of the rows of OnRows. Any goroutine.
func (a *promoted) Rows() Rows { return Rows{&a.core.rowWork} }

// SubAgents returns the handle of the agent's sub-agents. Any goroutine.
func (a *promoted) SubAgents() SubAgents { return SubAgents{&a.core} }

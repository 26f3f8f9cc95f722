package inbox

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
)

// Inbox describes the inbox of a class of agents of type O: rows of type Row are answered with responses of type Response. All
// functions get the agent's struct, and a ctx that holds its turn. A description may serve any number of classes; it must not
// change after the call of [On].
type Inbox[O, Row, Response any] struct {
	// Rows is the collection of the rows. Required.
	Rows *dohost.Collection[Row]
	// Pending names the index whose rows wait. Required.
	Pending string
	// Group returns the name of the group of a row. The rows of a group share a cycle, and each group has a cycle and a response
	// of its own. Rows that can fail each other's cycle, such as rows of senders that do not trust each other, belong to
	// different groups. Nil means that all rows are one group.
	Group func(Row) string
	// Build returns the messages for the model, from the rows of the cycle. The rows have the order of the index, apart from those
	// whose order has changed since their first cycle. Required.
	Build func(o *O, ctx context.Context, pending []dohost.Row[Row]) ([]chat.Message, error)
	// Generate returns the response, usually from a model. Required.
	Generate func(o *O, ctx context.Context, c *Cycle[Row]) (Response, error)
	// Respond writes the response, and deletes the rows of the cycle or changes them so that they are no longer in the index.
	// It runs in a [dohost.Transaction], so it must not give up the turn. If it fails, or leaves a row in the index, its writes
	// are rolled back and the cycle has failed. Required.
	Respond func(o *O, ctx context.Context, r Response, pending []dohost.Row[Row]) error
	// OnError is called for a cycle that failed, in addition to the report of the host. It is not called after an interruption, or for a
	// postponed cycle ([agent.PostponeError]). The rows stay in the index, and a later cycle repeats the failed one, unless OnError takes them
	// out of the index. Its writes are kept. Nil means that the host only reports the error.
	OnError func(o *O, ctx context.Context, err error, pending []dohost.Row[Row])
	// Options tunes the cycles: see [agent.RowsOptions]. Batch bounds the rows of a cycle, and zero means 50. After Retry.MaxAttempts
	// cycles of a row that failed, the row is parked. Parallel must be zero.
	Options agent.RowsOptions

	// Set by ForMessages.
	err        error
	prefix     dohost.Key
	agent      string                      // its name
	messages   *dohost.Collection[Message] // its collection
	summarize  agent.Entry[O]              // the fiber that summarises
	budgets    *budgetItems
	rowWritten func(ctx context.Context, a agent.Handle, w *dohost.RowWrite) error
	inspect    func(ctx context.Context, v *dohost.Snapshot) iter.Seq2[dohost.Resource, error]
	expiry     *expiry[O, Row]
}

// Cycle is the input of Generate.
type Cycle[Row any] struct {
	// Pending are the rows of the cycle, and Messages the messages that Build made from them.
	Pending  []dohost.Row[Row]
	Messages []chat.Message
	// Group is the name of the group of the rows.
	Group string
}

// check returns the errors in the description.
func (in *Inbox[O, Row, Response]) check() error {
	if in == nil {
		return errors.New("inbox: On without an Inbox")
	}
	if in.err != nil {
		return in.err
	}
	if in.Rows == nil {
		return errors.New("inbox: an Inbox without Rows")
	}
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("inbox: the Inbox of the collection %q %w", in.Rows.Name, fmt.Errorf(format, args...)))
	}
	if in.Build == nil {
		wrong("has no Build")
	}
	if in.Generate == nil {
		wrong("has no Generate")
	}
	if in.Respond == nil {
		wrong("has no Respond")
	}
	if !slices.ContainsFunc(in.Rows.Indexes, func(x dohost.Index[Row]) bool { return x.Name == in.Pending }) {
		wrong("names the index %q for its Pending, which the collection does not have", in.Pending)
	}
	if in.prefix != "" && in.Options.Prefix != "" {
		wrong("has the option Prefix, which ForMessages sets")
	}
	if in.Options.Parallel != 0 {
		wrong("has the option Parallel %d: want zero, since cycles run one at a time", in.Options.Parallel)
	}
	return errors.Join(errs...)
}

// On makes an inbox a part of a class of agents. A class may have several, over one collection or several, as long as no row is in
// two of them, and no two agents of [ForMessages] have one name.
//
// Open returns an error that names each missing field of in and each option that is not allowed, and the errors of [agent.OnRowGroups].
func On[O, Row, Response any, P interface {
	*O
	Ref
}](in *Inbox[O, Row, Response]) agent.Entry[O] {
	if err := in.check(); err != nil {
		return agent.Extend(agent.Extension[O]{Err: err})
	}
	options := in.Options
	if in.prefix != "" {
		options.Prefix = in.prefix
	}
	group := in.Group
	if group == nil {
		group = func(Row) string { return "" }
	}
	rows := agent.OnRowGroups(in.Rows, in.Pending, group, func(o *O, ctx context.Context, rows []dohost.Row[Row]) error {
		r := &runner[O, Row, Response]{in: in, o: o, store: P(o).Storage(), prefix: options.Prefix, groupOf: group}
		return r.run(ctx, rows)
	}, &options)
	part := shared[O](classPart{collection: in.Rows.Name, index: in.Pending, prefix: options.Prefix, messages: in.messages})
	if in.agent == "" {
		return agent.Extend(agent.Extension[O]{Entries: []agent.Entry[O]{rows, part}})
	}
	return agent.Extend(agent.Extension[O]{
		Name: fmt.Sprintf("the agent %q", in.agent), Description: fmt.Sprintf("an inbox over the collection %q", in.Rows.Name),
		Entries: []agent.Entry[O]{rows, in.summarize, part, agent.Extend(agent.Extension[O]{Inspect: in.inspect})}, RowWritten: in.rowWritten,
		Kinds: []string{detailBudget, detailBudgetEvent}, Inspect: in.budgets.inspect,
		Admin: func(o *O, ctx context.Context, r *dohost.AdminRequest) (bool, error) {
			return decideByOperator(ctx, P(o), r)
		},
	})
}

// Ref is an agent: an [*agent.Agent], a [*chat.Agent], a struct that embeds one, or an [agent.Handle].
type Ref interface {
	agent.Ref
	// Object returns the agent's object.
	Object() *dohost.State
	// Storage returns the storage of the agent's object.
	Storage() *dohost.Storage
	// Fibers returns the handle of the agent's fibers.
	Fibers() agent.Fibers
	// Rows returns the handle of the agent's rows.
	Rows() agent.Rows
}

package chat

import (
	"context"
	"iter"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// shared is the part of a conversation that all its values use. It is set before any of the object's code runs.
type shared struct {
	base  base
	class *class
	owner any // the user's struct
}

// base is the underlying agent.
type base interface {
	agent.Ref
	Fibers() agent.Fibers
	Name() string
	Object() *dohost.State
	Storage() *dohost.Storage
	Connections(tag string) iter.Seq[*agent.Conn]
	BroadcastTo(ctx context.Context, f dohost.Frame, to []*agent.Conn) error
}

// class is the part that all chat agents of a class share. Hooks receive the agent's struct as self.
type class struct {
	options  Options
	reply    func(self any, ctx context.Context, r *Reply) error
	recovery func(self any, ctx context.Context, c *InterruptedReply) (RecoveryAction, error)
	response func(self any, ctx context.Context, r Response) error
	sanitize func(self any, m Message) Message
	asked    func(self any, ctx context.Context, a Asked) error
	called   func(self any, ctx context.Context, c Call) error
}

func (s *shared) object() *dohost.State { return s.base.Object() }

func (s *shared) store() *dohost.Storage { return s.base.Storage() }

func (s *shared) options() *Options { return &s.class.options }

// readNote returns a singleton of the conversation; the zero noteRow if it is not stored.
func (s *shared) readNote(ctx context.Context, name string) (noteRow, error) {
	row, _, err := notes.Get(ctx, s.store(), name)
	return row.Value, err
}

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/dohost/dohost"
)

// method is a method that clients may call.
type method struct {
	call func(self any, ctx context.Context, args []json.RawMessage, s *Stream) (json.RawMessage, error)
}

// Callable lets clients call the method m: over their connection, and by HTTP as
// [dohost.ExposeRead] does. Clients that may only read can call it, and [Agent.SetState] fails then.
// A client's one argument is decoded into In; several are the elements
// of In if that is a slice or an array, and else its exported fields, in order; none is the
// zero value. A result of type struct{} is no result.
//
// What a client is told of an error is its text.
func Callable[O, In, Out any](name string, m func(*O, context.Context, In) (Out, error)) Entry[O] {
	return func(c *class) {
		if !c.add(name, "Callable", m == nil) {
			return
		}
		c.exposed = append(c.exposed, dohost.ExposeRead(name, m))
		c.methods[name] = method{func(self any, ctx context.Context, args []json.RawMessage, _ *Stream) (json.RawMessage, error) {
			in, err := arguments[In](args)
			if err != nil {
				return nil, &dohost.ArgumentError{Method: name, Err: err}
			}
			out, err := m(self.(*O), ctx, in)
			if err != nil {
				return nil, err
			}
			return result(out)
		}}
	}
}

// Streaming lets clients call the method m over their connection, and get more than one
// answer: what m sends to the stream, and then what it returns. Arguments and result are
// as [Callable] has them.
func Streaming[O, In, Out any](name string, m func(*O, context.Context, In, *Stream) (Out, error)) Entry[O] {
	return func(c *class) {
		if !c.add(name, "Streaming", m == nil) {
			return
		}
		c.methods[name] = method{func(self any, ctx context.Context, args []json.RawMessage, s *Stream) (json.RawMessage, error) {
			in, err := arguments[In](args)
			if err != nil {
				return nil, &dohost.ArgumentError{Method: name, Err: err}
			}
			out, err := m(self.(*O), ctx, in, s)
			if err != nil {
				return nil, err
			}
			return result(out)
		}}
	}
}

func (c *class) add(name, entry string, missing bool) bool {
	_, taken := c.methods[name]
	switch {
	case name == "":
		c.mistake("%s without a name", entry)
	case missing:
		c.mistake("%s of %q without a method", entry, name)
	case taken:
		c.mistake("a second %s of %q", entry, name)
	default:
		return true
	}
	return false
}

// Stream is the way back to the client that has called a [Streaming] method.
type Stream struct {
	conn *Conn
	id   string
	over bool
}

// Send sends v, as JSON, once everything that the agent has written before is durable.
//
// Errors: [dohost.ErrSocketClosed] when the client has gone, and when the method has
// returned; those of [dohost.Socket.Send]; and one for a value that is not JSON.
func (s *Stream) Send(ctx context.Context, v any) error {
	if s.over {
		return dohost.ErrSocketClosed
	}
	chunk, err := marshal(v)
	if err != nil {
		return err
	}
	done := false
	return s.conn.send(ctx, rpcAnswer{Type: frameRPC, ID: s.id, Success: true, Done: &done, Result: chunk})
}

// arguments decodes what a client called with.
func arguments[In any](args []json.RawMessage) (in In, err error) {
	switch len(args) {
	case 0:
		return in, nil
	case 1:
		return in, json.Unmarshal(args[0], &in)
	}
	v := reflect.ValueOf(&in).Elem()
	if v.Kind() != reflect.Struct {
		all, err := json.Marshal(args)
		if err != nil {
			return in, err
		}
		return in, json.Unmarshal(all, &in)
	}
	var fields []reflect.Value
	for f, field := range v.Fields() {
		if f.IsExported() {
			fields = append(fields, field)
		}
	}
	if len(args) > len(fields) {
		return in, fmt.Errorf("%d arguments: want at most %d", len(args), len(fields))
	}
	for i, arg := range args {
		if err := json.Unmarshal(arg, fields[i].Addr().Interface()); err != nil {
			return in, fmt.Errorf("argument %d: %w", i+1, err)
		}
	}
	return in, nil
}

// result encodes what a method has returned. It is nil for one without a result.
func result(out any) (json.RawMessage, error) {
	if _, none := out.(struct{}); none {
		return nil, nil
	}
	return marshal(out)
}

// marshal encodes v as JavaScript would: without escaping what HTML does not like.
func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// errNoMethod and errNotCallable are told to clients in the words of the Agents SDK.
var (
	errNoMethod    = errors.New("does not exist")
	errNotCallable = errors.New("is not callable")
)

// method finds what a client calls.
func (c *class) method(name string) (method, error) {
	m, ok := c.methods[name]
	if ok {
		return m, nil
	}
	err := errNoMethod
	if _, there := c.object.MethodByName(name); there {
		err = errNotCallable
	}
	//lint:ignore ST1005 these are the wire's words
	return method{}, fmt.Errorf("Method %s %w", name, err)
}

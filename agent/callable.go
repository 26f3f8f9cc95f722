package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"reflect"

	"github.com/dohost/dohost"
)

// method is a method that clients may call.
type method func(self any, ctx context.Context, args json.RawMessage, s *Stream) (json.RawMessage, error)

// newMethod returns the method m with its arguments and its result in JSON.
func newMethod[O, In, Out any](name string, m func(*O, context.Context, In, *Stream) (Out, error)) method {
	return func(self any, ctx context.Context, args json.RawMessage, s *Stream) (json.RawMessage, error) {
		in, err := arguments[In](args)
		if err != nil {
			return nil, &dohost.ArgumentError{Method: name, Err: err}
		}
		out, err := m(self.(*O), ctx, in, s)
		if err != nil {
			return nil, err
		}
		return result(out)
	}
}

// Callable lets clients call the method m, over their connection and, as with [dohost.ExposeRead],
// over HTTP. Clients that may only read can call it, and [Agent.SetState] fails then.
//
// The type In determines how arguments are decoded, as follows. Missing arguments keep their zero
// value; superfluous arguments are ignored, unless the type takes all arguments.
//
//   - a struct: a sole argument that is an object, or null, is In; otherwise the arguments are its
//     exported fields, in order
//   - a slice or an array: a sole argument that is an array, or null, is In; otherwise the arguments
//     are its elements
//   - an interface, and a type with an UnmarshalJSON method: the argument or, of several, an array
//   - any other type, and []byte: the first argument
//
// A pointer behaves like the type that it points to. A result of type struct{} means no result.
//
// A name has at most 256 bytes, and is not "http". [dohost.Open] refuses types that JSON cannot carry, as for
// [dohost.Expose]. The client gets the text of a [dohost.PublicError]. Of any other error it gets "internal error" and
// an id, unless [dohost.Options.ErrorTexts] is set.
func Callable[O, In, Out any](name string, m func(*O, context.Context, In) (Out, error)) Entry[O] {
	return Entry[O]{bind: func(c *class) {
		if !c.add(name, "Callable", m == nil) {
			return
		}
		c.exposed = append(c.exposed, dohost.ExposeRead(name, m))
		c.methods[name] = newMethod(name, func(o *O, ctx context.Context, in In, _ *Stream) (Out, error) { return m(o, ctx, in) })
	}}
}

// Streaming lets clients call the method m over their connection and get several answers: each value that m
// sends to the stream, then m's result. Arguments and result are encoded as for [Callable].
func Streaming[O, In, Out any](name string, m func(*O, context.Context, In, *Stream) (Out, error)) Entry[O] {
	return Entry[O]{bind: func(c *class) {
		if !c.add(name, "Streaming", m == nil) {
			return
		}
		c.methods[name] = newMethod(name, m)
	}}
}

func (c *class) add(name, entry string, missing bool) bool {
	_, taken := c.methods[name]
	switch {
	case name == "":
		c.mistake("%s without a name", entry)
	case name == "http":
		c.mistake("%s of %q: the name is reserved", entry, name)
	case len(name) > maxName:
		c.mistake("%s of %.40q: want a name of at most %d bytes", entry, name, maxName)
	case missing:
		c.mistake("%s of %q without a method", entry, name)
	case taken:
		c.mistake("a second %s of %q", entry, name)
	default:
		return true
	}
	return false
}

// Stream sends values to the client that called a [Streaming] method.
type Stream struct {
	conn  *Conn
	id    string
	ended bool
}

// Send sends v, as JSON, once all earlier writes of the agent are durable.
//
// Errors: [dohost.ErrClosed] when the client has disconnected or the method has returned; the errors of
// [dohost.Socket.Send]; one for a value that is not JSON.
func (s *Stream) Send(ctx context.Context, v any) error {
	if s.ended {
		return dohost.ErrClosed
	}
	chunk, err := marshal(v)
	if err != nil {
		return err
	}
	done := false
	return s.conn.send(ctx, rpcAnswer{Type: frameRPC, ID: s.id, Success: true, Done: &done, Result: chunk})
}

// arguments decodes the arguments of a client's call, a valid JSON array: see Callable.
func arguments[In any](args json.RawMessage) (in In, err error) {
	return in, decodeArguments(args, reflect.ValueOf(&in))
}

// decodeArguments decodes arguments into the value that the pointer in points to. It allocates memory for that value
// only: a frame may have millions of arguments.
func decodeArguments(args json.RawMessage, in reflect.Value) error {
	var whole json.RawMessage
	n := 0 // 0, 1, or 2 for more
	for arg := range elements(args) {
		if n++; n > 1 {
			break
		}
		whole = arg
	}
	if n == 0 {
		return nil
	}
	v := in.Elem()
	if _, own := in.Interface().(json.Unmarshaler); own || v.Kind() == reflect.Interface {
		if n > 1 {
			whole = args
		}
		return json.Unmarshal(whole, in.Interface())
	}
	switch v.Kind() {
	case reflect.Pointer:
		if n == 1 && string(whole) == "null" {
			return nil
		}
		v.Set(reflect.New(v.Type().Elem()))
		return decodeArguments(args, v)
	case reflect.Struct:
		if n > 1 || whole[0] != '{' && whole[0] != 'n' {
			return decodeFields(args, v)
		}
	case reflect.Slice, reflect.Array:
		if (n > 1 || whole[0] != '[' && whole[0] != 'n') && v.Type().Elem().Kind() != reflect.Uint8 {
			whole = args
		}
	}
	return json.Unmarshal(whole, in.Interface())
}

// decodeFields decodes arguments into the exported fields of a struct, in order, without those that JSON leaves out.
func decodeFields(args json.RawMessage, v reflect.Value) error {
	var fields []reflect.Value
	for f, field := range v.Fields() {
		if f.IsExported() && f.Tag.Get("json") != "-" {
			fields = append(fields, field)
		}
	}
	n := 0
	for arg := range elements(args) {
		if n == len(fields) {
			break
		}
		if err := json.Unmarshal(arg, fields[n].Addr().Interface()); err != nil {
			return fmt.Errorf("argument %d: %w", n+1, err)
		}
		n++
	}
	return nil
}

// elements yields the elements of a valid JSON array, without a copy.
func elements(array json.RawMessage) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		depth, begin, quoted := 0, 1, false
		for i := 0; i < len(array); i++ {
			switch b := array[i]; {
			case quoted && b == '\\':
				i++
			case b == '"':
				quoted = !quoted
			case quoted:
			case b == '[' || b == '{':
				depth++
			case b == '}' || b == ']' && depth > 1:
				depth--
			case (b == ',' || b == ']') && depth == 1:
				element := bytes.TrimSpace(array[begin:i])
				if len(element) == 0 || !yield(element) || b == ']' { // without an element, the array is empty
					return
				}
				begin = i + 1
			}
		}
	}
}

// result encodes a method's result. It returns nil if the method has none.
func result(out any) (json.RawMessage, error) {
	if _, none := out.(struct{}); none {
		return nil, nil
	}
	return marshal(out)
}

// marshal encodes v as JavaScript would, without HTML escaping.
func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// The Agents SDK has the texts of errNoMethod and errNotCallable.
var (
	errNoMethod    = errors.New("does not exist")
	errNotCallable = errors.New("is not callable")
)

// method finds the method that a client calls.
func (c *class) method(name string) (method, error) {
	m, ok := c.methods[name]
	if ok {
		return m, nil
	}
	err := errNoMethod
	if _, there := c.object.MethodByName(name); there {
		err = errNotCallable
	}
	return nil, &dohost.PublicError{Message: fmt.Sprintf("Method %s %v", name, err), Code: "no_method", Status: http.StatusNotFound}
}

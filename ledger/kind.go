package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// Answer is the answer of [Kind].Find.
type Answer uint8

// The answers.
const (
	AnswerUnknown Answer = iota // the other side does not know, or may not know yet
	AnswerDone                  // the call took effect
	AnswerNotDone               // the call did not take effect, and cannot take effect later
)

// Kind is a kind of operation: its arguments are of type A, and its result is of type R. Results are stored as JSON of at most
// 8 MiB: if a call returns a larger one, the operation took effect and is unknown. One variable serves all objects. [Declare] makes
// [dohost.Open] check it. Any number of goroutines may use a Kind, which must not change after its first use.
type Kind[A, R any] struct {
	// Name is 1 to 128 bytes of UTF-8, and is stored. It must be unique among the kinds of the class.
	Name string
	// Same returns the part of the arguments that makes two operations of a scope the same, in a form that JSON can carry. It
	// must not depend on fields without a JSON form, nor on times that are not in UTC: Do refuses both. A field that a later
	// version of the program adds needs omitzero or omitempty, or else all operations get other IDs.
	// [Whole] returns all arguments. The stored canonical form ignores the order of object members, the notation of numbers,
	// and members that are null. It does not normalize Unicode. Required.
	Same func(A) any
	// Policy is the treatment of an operation whose outcome is unknown. Required.
	Policy Policy
	// Unknown returns the text of the [UnknownError]. Callers outside of the process may read it. If it panics, the error has a
	// general text for them, and the panic in Err. Required.
	Unknown func(id ID, args A) string
	// Find asks the other side about an operation whose outcome is unknown. Do calls it without the object's turn, and no two
	// calls of Find for one operation run concurrently in an incarnation. An error counts as AnswerUnknown. Required for
	// PolicyReconcile; nil for the others.
	Find func(ctx context.Context, id ID, args A) (R, Answer, error)
	// NoEffect reports whether an error of the call proves that it had no effect. Nil means that only errors marked with
	// the function [NoEffect] do.
	NoEffect func(error) bool
	// MaxAttempts bounds the calls of an operation since it began or last failed. After MaxAttempts calls, an operation with
	// PolicyIdempotent is unknown, and one with PolicyReconcile fails after AnswerNotDone. Zero means 5. For PolicyAtMostOnce it must
	// be 0.
	MaxAttempts int
	// Keep is the retention period after an operation completes or fails, of at least 1 ms. After that, Do treats an equal operation as a
	// new one, and calls again. Zero means forever. Unknown operations do not expire. Each new operation deletes up to two
	// expired rows of the object; until then [Get] and [All] return them.
	Keep time.Duration
}

// Whole is a [Kind].Same that returns all arguments.
func Whole[A any](args A) any { return args }

const (
	maxName         = 128
	defaultAttempts = 5
)

// AnyKind is a pointer to a [Kind].
type AnyKind interface {
	describe() (name string, err error)
	decode(result json.RawMessage) (json.RawMessage, error)
	resolve(ctx context.Context, st *dohost.State, id ID, result json.RawMessage) error
}

func (k *Kind[A, R]) describe() (name string, err error) {
	if k == nil {
		return "", errors.New("ledger: a kind is nil")
	}
	wrong := func(text string) error { return fmt.Errorf("ledger: kind %q: %s", k.Name, text) }
	switch {
	case k.Name == "" || len(k.Name) > maxName || !utf8.ValidString(k.Name):
		return k.Name, fmt.Errorf("ledger: kind name %.140q: want 1 to %d bytes of UTF-8", k.Name, maxName)
	case k.Same == nil:
		return k.Name, wrong("Same is nil: want a function, such as ledger.Whole")
	case k.Policy < PolicyAtMostOnce || k.Policy > PolicyReconcile:
		return k.Name, wrong("want a Policy: PolicyAtMostOnce, PolicyIdempotent or PolicyReconcile")
	case k.Unknown == nil:
		return k.Name, wrong("Unknown is nil: want a function that returns the text for callers")
	case k.Policy == PolicyReconcile && k.Find == nil:
		return k.Name, wrong("PolicyReconcile needs Find")
	case k.Policy != PolicyReconcile && k.Find != nil:
		return k.Name, wrong("only PolicyReconcile calls Find")
	case k.MaxAttempts < 0:
		return k.Name, wrong("MaxAttempts is negative")
	case k.Policy == PolicyAtMostOnce && k.MaxAttempts > 0:
		return k.Name, wrong("MaxAttempts is for PolicyIdempotent and PolicyReconcile")
	case k.Keep < 0 || k.Keep > 0 && k.Keep < time.Millisecond:
		return k.Name, wrong("Keep must be zero, or at least 1 ms")
	}
	return k.Name, nil
}

// Declare returns an extension of a class, with the kinds of the operations of its objects: see Extensions in [dohost.Handlers] and in
// the Handlers of package agent. When an object wakes, the ledger reports each operation that
// the end of an incarnation has interrupted to the host's Listener, before any event runs; after 1 MiB of such operations, the next wake
// reports the others. Operators see the operations ([dohost.Host.Details]) and may resolve them ([dohost.Host.Operate]). [dohost.Open]
// returns an error for a kind that is incomplete, for two kinds with the same name, and for two Declare of one class.
func Declare(kinds ...AnyKind) dohost.ClassExtension {
	var errs []error
	names := map[string]AnyKind{}
	for _, k := range kinds {
		if k == nil {
			errs = append(errs, errors.New("ledger: a kind is nil"))
			continue
		}
		name, err := k.describe()
		if err == nil && names[name] != nil {
			err = fmt.Errorf("ledger: two kinds have the name %q", name)
		}
		names[name] = k
		errs = append(errs, err)
	}
	return dohost.ClassExtension{
		Kinds: []string{ResourceKind, ResourceOutcomes}, Inspect: inspect, Start: listInterrupted, Err: errors.Join(errs...),
		Admin: func(ctx context.Context, st *dohost.State, _ any, r *dohost.AdminRequest) (bool, error) {
			return operate(ctx, st, names, r)
		},
	}
}

// decode checks that a result of JSON can be decoded, and returns it as [Do] would store it.
func (k *Kind[A, R]) decode(result json.RawMessage) (json.RawMessage, error) {
	var r R
	dec := json.NewDecoder(bytes.NewReader(result))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("there is more than one value")
	}
	return encodeResult(r)
}

func (k *Kind[A, R]) maxAttempts() int {
	if k.MaxAttempts == 0 {
		return defaultAttempts
	}
	return k.MaxAttempts
}

// policy returns the policy of the rows of the kind. Find has no effect, so its calls are not bounded. For Reconcile, Do bounds
// the calls of an operation by row.Begun.
func (k *Kind[A, R]) policy() *work.Policy {
	p := &work.Policy{Known: true, Resumable: true, GiveUp: true, KeepCompleted: k.Keep, KeepFailed: k.Keep}
	switch k.Policy {
	case PolicyIdempotent:
		p.MaxRetries = k.maxAttempts() - 1
	case PolicyReconcile:
		p.MaxRetries, p.RecoveryHook = -1, true
	}
	return p
}

// task returns a Do without its type parameters.
func (k *Kind[A, R]) task(st *dohost.State, args A, call func(context.Context, ID) (R, error)) *task {
	encode := func(r R, err error) (json.RawMessage, error) {
		if err != nil {
			return nil, err
		}
		return encodeDecodable(r)
	}
	o := &task{
		st: st, kind: k.Name, policy: k.policy(), declared: k.Policy, maxAttempts: k.maxAttempts(),
		call:     func(ctx context.Context, id ID) (json.RawMessage, error) { return encode(call(ctx, id)) },
		unknown:  func(id ID) string { return k.Unknown(id, args) },
		noEffect: func(err error) bool { return ProvesNoEffect(err) || k.NoEffect != nil && k.NoEffect(err) },
	}
	if k.Find != nil {
		o.find = func(ctx context.Context, id ID) (json.RawMessage, Answer, error) {
			r, a, err := k.Find(ctx, id, args)
			if err != nil || a != AnswerDone {
				return nil, a, err
			}
			result, err := encodeDecodable(r)
			return result, a, err
		}
	}
	return o
}

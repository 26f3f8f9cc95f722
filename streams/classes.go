package streams

import (
	"context"
	"weak"

	"github.com/dohost/dohost"
)

// Streams is the namespace of streams. The name of an object is the path of the stream, without a slash at its beginning.
const Streams dohost.Namespace[Stream] = "stream"

// ClassOptions tunes the class of streams. A nil *ClassOptions, and the zero ClassOptions, mean the defaults.
type ClassOptions struct {
	// Authorize decides about each request of [Server] for a stream, as [dohost.Handlers].Authorize does. AccessRequest.ID.Name is the
	// path of the stream. Callers with [dohost.RightsReadOnly] rights can neither create, append to, close nor delete it. Nil admits all
	// callers.
	//
	// For subscriptions ID.Class is [Subscriptions], and ID.Name is the ID that the client has chosen. The client also needs the right to
	// read each stream that it names, the right to write the wake stream, and the right to read a stream whose path is the pattern: a
	// function that compares prefixes of paths decides about patterns too. The worker of a wake needs no more than its token.
	Authorize func(context.Context, *dohost.AccessRequest) (dohost.Access, error)
	// Webhooks tunes the webhooks of subscriptions. Nil means the defaults.
	Webhooks *WebhookOptions
}

// shared is common to the objects of one call of Classes.
type shared struct {
	signals     *signals
	directories *directories
	sender      *sender
}

// Classes returns the classes of a host that [Server] serves.
func Classes(o *ClassOptions) []dohost.Class {
	if o == nil {
		o = &ClassOptions{}
	}
	sh := &shared{newSignals(), &directories{byHost: map[weak.Pointer[dohost.Host]]*directory{}}, newSender(o.Webhooks)}
	return []dohost.Class{
		dohost.Bind(Streams, func(_ context.Context, st *dohost.State) (*Stream, error) {
			return &Stream{state: st, signals: sh.signals, directory: sh.directories.of(hostOf(st))}, nil
		}, &dohost.Handlers[Stream]{Authorize: o.Authorize, OnAlarm: (*Stream).alarm, OnInspect: inspectStream, ByReference: true}),
		dohost.Bind(Subscriptions, func(ctx context.Context, st *dohost.State) (*Subscription, error) {
			return newSubscription(ctx, st, sh)
		}, &dohost.Handlers[Subscription]{
			Authorize: o.Authorize, OnAlarm: (*Subscription).alarm, OnInspect: inspectSubscription, ByReference: true,
		}),
		dohost.Bind(signers, func(_ context.Context, st *dohost.State) (*signer, error) {
			return &signer{st}, nil
		}, &dohost.Handlers[signer]{Private: func(string) bool { return true }}),
	}
}

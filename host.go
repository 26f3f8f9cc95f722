package dohost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/budget"
	"github.com/dohost/dohost/internal/hostof"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
	"github.com/dohost/dohost/sharedlog"
)

// Options tunes a Host. A nil *Options, and the zero Options, mean the defaults. [Open] returns an error for a field
// that is out of its range.
type Options struct {
	// IdleAfter is the time after which an object without work is evicted. Zero means a random time from 70 to 140 s,
	// or 10 s if the object has a WebSocket, as in Durable Objects. Otherwise the time is drawn from IdleAfter to
	// twice that. Negative means never.
	IdleAfter time.Duration
	// Grace is the time that Close gives handlers to finish. Zero means 30 s; negative, no time.
	Grace time.Duration
	// MaxEvents bounds an object's events, queued, running and suspended, and its
	// background tasks. An event does not count once its answer has left. Zero means 4,096; negative is an error.
	MaxEvents int
	// MaxBytes bounds the encoded arguments that wait for an object. Zero means
	// 64 MiB; negative is an error.
	MaxBytes int
	// MaxAge bounds how long an event waits for an object. Zero means 30 s; negative, no bound.
	MaxAge time.Duration
	// MaxLive bounds the objects in memory: beyond it the host evicts idle ones. Zero means no bound; negative is an
	// error.
	MaxLive int
	// HeapBudget is the live heap, in bytes, beyond which idle objects are evicted.
	// Zero means no bound.
	HeapBudget uint64
	// TimeScale divides the platform's times: the time until idle eviction (unless IdleAfter is set), and the time
	// limits of constructors and Exclusive sections, of alarm handlers and of the disk. It scales neither times that
	// objects ask for, nor the other options (Grace, MaxAge), nor the delays before a failed alarm or constructor
	// runs again. Zero means 1; negative, infinite and NaN are errors.
	TimeScale float64
	// Chaos ends incarnations at random. The zero Chaos ends none; a rate that is no
	// chance, a negative mean, an unknown place or mode is an error.
	Chaos Chaos
	// MaxFrame bounds a frame that a client sends over a WebSocket, in bytes. Zero means
	// DefaultMaxFrame; negative is an error.
	MaxFrame int
	// ReadBudget bounds the bytes of request bodies and frames that the host reads and handles at
	// one time, for all clients together. They count until their handler has returned, also while it
	// awaits. The first 4 KiB of each do not count, nor do the bytes of a body beyond 16 MiB. A client
	// that finds the budget exhausted for 10 s gets status 503, or its socket is closed with
	// CloseBusy. A body that is larger than the budget is refused with status 413. Zero means
	// DefaultReadBudget; negative is an error.
	ReadBudget int64
	// SendBudget bounds the bytes of frames, of released parts of HTTP responses and of results of
	// exposed methods ([Host.WriteBody]) that wait for all clients. A frame for many sockets counts
	// once, a part of a response counts with its header and the memory that it takes, and the first
	// 4 KiB of a response do not count. Beyond it the host closes the sockets with the most waiting
	// bytes, with CloseBusy, and cuts the connections of the responses with the most. A part of a
	// response that is larger than the budget is always cut. Zero means DefaultSendBudget; negative
	// is an error.
	SendBudget int64
	// Origins are the origins of pages that may connect WebSockets to objects, in addition to the server's own, such
	// as "https://example.com" or, for any scheme, "*.example.com". A malformed pattern is an error.
	Origins []string
	// Listener is notified of the host's actions. The zero value ignores them.
	Listener Listener
	// ErrorTexts lets clients outside the process read the texts of all errors that methods and
	// handlers return, not only the text of a [PublicError]. It is for development.
	ErrorTexts bool
	// Ship is the archive that gets a copy of each record, asynchronously: see [Archive]. Nil ships nothing. The archive
	// must be empty, or have records of this store; otherwise Open returns ErrConflict. Host.Stats has the lag. The caller
	// closes the archive after the host.
	Ship Archive
	// Lease is the right to append to a log outside of the directory, which then has the history of the store: see package
	// [github.com/dohost/dohost/sharedlog] and docs/shared-log.md. The directory may be empty or old: Open replays the records that
	// it lacks. When the lease is lost the host fails with ErrFenced, as with a disk that fails. A lease is for one
	// Open. Close releases it; if Open fails, the caller releases it. Nil keeps the history in the directory. Ship cannot be set too.
	Lease sharedlog.Lease
	// BaseAfter is how many bytes of records follow a base in the log of Lease, in addition to the size of the base, before the host
	// writes the next one and purges the records before it. A host that opens an empty directory reads a base and these records. Zero
	// means 64 MiB; negative is an error. Host.Stats has the failures.
	BaseAfter int64
	// Holds reports whether the host has an object; it is for hosts that divide the objects of a program among them, as the hosts of
	// package [github.com/dohost/dohost/cluster] do. The host wakes no other object, neither for a call nor for an alarm, and neither imports
	// nor restores one: the error is ErrElsewhere. Holds must not block, and always returns the same for an object; a panic means false.
	// It may be called from any goroutine. Nil means all objects.
	Holds func(ID) bool
	// Remote carries calls of [Invoke] to objects of other hosts, by Holds. Nil means that these calls return ErrElsewhere.
	Remote Remote
	// StoreMemory is the size in bytes of each of the up to four memtables of the storage engine, and the least size of its block cache,
	// which also holds blocks in the memory that the memtables do not use. So the engine takes at most five times as much. Zero means
	// 64 MiB. Programs with several hosts choose less; less than 1 MiB is an error.
	StoreMemory int64
	// Logger gets the storage engine's messages, and the errors that clients get without their text. Nil discards
	// them.
	Logger *slog.Logger

	// fs is the file system of the store, in tests and tools of this module. Nil means the disk.
	fs *objectstore.FS
	// tune changes the runtime's options, in tests and tools of this module. Nil changes nothing.
	tune func(*runtime.Options)
}

func init() {
	kernel.OfHost = func(l any) *runtime.Host { return l.(Locator).host().rt }
	hostof.State = func(st any) any { return st.(*State).host() }
	kernel.OfState = func(st any) *runtime.State { return st.(*State).rt() }
	kernel.CheckStore = func(
		ctx context.Context, s *objectstore.Store, report func(CheckProblem), classes any,
	) (CheckStats, error) {
		return checkStore(ctx, s, report, classes.([]Class))
	}
	kernel.SetFS = func(options any, fs *objectstore.FS) { options.(*Options).fs = fs }
	kernel.Tune = func(options any, change func(*runtime.Options)) {
		o := options.(*Options)
		earlier := o.tune
		o.tune = func(ro *runtime.Options) {
			if earlier != nil {
				earlier(ro)
			}
			change(ro)
		}
	}
}

// EndMode is a way to end an incarnation.
type EndMode = eviction.EndMode

// The modes of an eviction: EndFence and EndRestart keep the object's committed writes. EndCrash loses the commits that
// are not in the record in flight, as a power cut does for all objects. EndPowerCut and EndKill end the process, which
// only package dohosttest does: after EndKill, as after SIGKILL, the next process finds all writes, synced or not, and
// after EndPowerCut it does not find the unsynced ones. After EndTakeOver another process owns the shared log (see
// Options.Lease), and the code of the former owner runs on without effect.
const (
	EndFence    = eviction.EndFence
	EndRestart  = eviction.EndRestart
	EndCrash    = eviction.EndCrash
	EndPowerCut = eviction.EndPowerCut
	EndKill     = eviction.EndKill
	EndTakeOver = eviction.EndTakeOver
)

// ParseEndMode returns the mode with a name: fence, restart or crash. Any other name is an error.
func ParseEndMode(name string) (EndMode, error) { return eviction.ParseEndMode(name) }

// Host owns a directory and runs the objects in it. Its methods may be called from
// any goroutine.
type Host struct {
	rt      *runtime.Host
	classes map[string]Class
	sockets *socket.Table
	reads   *budget.Budget
	origins []string
	log     *slog.Logger // nil discards
	remote  Remote       // Options.Remote
	calls   callsInProgress
	// errorTexts is Options.ErrorTexts.
	errorTexts bool
	// authorizes reports whether a class has an Authorize function.
	authorizes bool
}

// Open opens the store in dir, creating it if need be, and starts delivering the
// alarms that are due. Close it in the end.
//
// Errors: [ErrConflict] if another host has the store open; [ErrDamaged] for an unknown format, and for a directory, or
// a database in it, that is not the store's; [ErrNotFound] if the store's database is missing or incomplete; and errors
// that name a mistake in the options or classes, which leave the directory unchanged.
func Open(dir string, o *Options, classes ...Class) (*Host, error) {
	if o == nil {
		o = &Options{}
	}
	if err := errors.Join(o.check(), procedureMistakes()); err != nil {
		return nil, err
	}
	h := &Host{classes: map[string]Class{}, origins: slices.Clone(o.Origins), log: o.Logger, remote: o.Remote, errorTexts: o.ErrorTexts}
	var rts []runtime.Class
	inURLs := map[string]string{}
	var invalid []error
	for _, c := range classes {
		invalid = append(invalid, c.errs...)
	}
	if len(invalid) > 0 {
		return nil, errors.Join(invalid...)
	}
	for _, c := range classes {
		if other, taken := inURLs[URLName(c.Name())]; taken && other != c.Name() && c.ServesHTTP() {
			return nil, fmt.Errorf("dohost: classes %q and %q are both %q in URLs", other, c.Name(), URLName(c.Name()))
		}
		if c.ServesHTTP() {
			inURLs[URLName(c.Name())] = c.Name()
		}
		h.classes[c.rt.Name] = c
		h.authorizes = h.authorizes || c.authorize != nil
		rts = append(rts, c.rt)
	}
	limits := o.limits()
	h.sockets, h.reads = socket.New(limits), limits.Reads
	ro := o.runtime(h.sockets.Count)
	ro.Owner, ro.Ended, ro.Abandoned = h, h.sockets.Ended, h.sockets.Abandon
	ro.Opened = func(rt *runtime.Host) { // an object that an alarm wakes may use the host
		h.rt = rt
		h.sockets.Serve(rt)
	}
	if _, err := runtime.Open(dir, ro, rts); err != nil {
		return nil, err
	}
	return h, nil
}

// host makes h a [Locator].
func (h *Host) host() *Host { return h }

// Close refuses new calls and gives running events Options.Grace to finish; until then it serves calls between
// objects. Then it fences the remaining events and closes the store. Its error names the handlers that did not stop,
// and the cause if the store has failed. Close closes the sockets last, and cuts the sockets of clients that do not
// answer within 5 s. It may be called more than once.
//
// After the store is closed, reports that wait for [Listener].Service have a second to reach it. Close discards the
// others, and reports their number to Listener.Failed and the log: no call of Service begins after Close has returned.
func (h *Host) Close() error {
	return errors.Join(h.rt.Close(), h.sockets.Close())
}

// Err returns the cause of the store's failure, or nil. A store that failed to sync acknowledges no more writes, and
// the host closes itself. All acknowledged writes are there when the store is opened again.
func (h *Host) Err() error { return h.rt.Err() }

// Failed is closed when the store has failed.
func (h *Host) Failed() <-chan struct{} { return h.rt.Failed() }

// Closing is closed when Close begins, also when the host closes itself after a failure of the store. HTTP handlers that wait
// for something else than an object end their response then.
func (h *Host) Closing() <-chan struct{} { return h.rt.Closing() }

// Invoke calls an exposed method by name, with JSON, for a caller outside the process. If the class
// has an Authorize function, ctx must come from [Host.AuthorizeCall] or [GrantAccess].
//
// Errors: an [*Error], with [OutcomeNotRun] for [ErrNotFound], [ErrForbidden], [ErrUnauthenticated] for a ctx without
// an Access, and an argument that cannot be read ([*ArgumentError]); with [OutcomeRan] it is the error that the method
// returned.
func (h *Host) Invoke(ctx context.Context, id ID, method string, arg []byte) (result []byte, err error) {
	access := grantFrom(ctx, id)
	m, err := h.callable(id, method, access)
	if err != nil {
		return nil, &Error{Op: method, ID: id, Err: err, Outcome: OutcomeNotRun}
	}
	share := argumentShare(ctx)
	size := len(arg)
	var out []byte
	run := runtime.Func(func(ctx context.Context, instance any) (err error) {
		share.begin()
		defer share.release()
		encoded := arg
		arg = nil // the method decodes it first, and may run for long
		out, err = m(carryAccess(ctx, access), instance, encoded)
		return err
	})
	if err := h.rt.Do(ctx, id, runtime.Call{Op: method, Size: size, Handler: run}); err != nil {
		return nil, unmarked(err)
	}
	return out, nil
}

// callable returns the method that a caller from outside may call with an access, which may be nil.
func (h *Host) callable(id ID, method string, access *Access) (runtime.Method, error) {
	c := h.classes[id.Class]
	if err := h.reachable(id); err != nil {
		return nil, err
	}
	if access == nil && c.authorize != nil {
		return nil, ErrUnauthenticated
	}
	if access != nil {
		if err := permits(access); err != nil {
			return nil, err
		}
	}
	m, err := h.rt.Method(id.Class, method)
	if err == nil && access != nil && access.Rights == RightsReadOnly && !c.reads[method] {
		return nil, errReadOnly
	}
	return m, err
}

// Evict ends the object's incarnation, and reports whether it had one. It does nothing, and returns false, if mode is
// not [EndFence], [EndRestart] or [EndCrash].
func (h *Host) Evict(id ID, mode EndMode) bool { return mode.EndsIncarnation() && h.rt.Evict(id, mode) }

// Objects yields the durable objects of a class in order of name, after a name. It
// wakes none of them. After [ErrDamaged] the iteration may continue with the objects outside
// the damaged block.
func (h *Host) Objects(ctx context.Context, class, after string) iter.Seq2[ID, error] {
	return h.inspection().objects(ctx, class, after)
}

// Exists reports whether the object has durable data. It does not wake the object.
func (h *Host) Exists(ctx context.Context, id ID) (bool, error) {
	sn, err := h.rt.Store().Snapshot(ctx)
	if err != nil {
		return false, err
	}
	defer sn.Close()
	return sn.Exists(id)
}

// Export writes the object's durable state to w. It does not wake it.
func (h *Host) Export(ctx context.Context, id ID, w io.Writer) error {
	return h.inspection().export(ctx, id, w)
}

// Identity names a store, and one of its histories: see [Host.Backup].
type Identity = objectstore.Identity

// Identity names the host's store. It is the same after each restart.
func (h *Host) Identity() Identity { return h.rt.Store().Identity() }

// Backup makes a copy of the store in dir, which must be absent or empty, as of now.
// The first [Open] of the copy draws another fork for it, so that epochs and feed
// positions of the two histories differ.
// A backup that returns an error, or was interrupted, is no store, and may leave a
// directory, which is to be removed before the next try.
func (h *Host) Backup(ctx context.Context, dir string) error { return h.rt.Store().Backup(ctx, dir) }

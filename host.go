package dohost

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"

	"github.com/dohost/dohost/internal/budget"
	"github.com/dohost/dohost/internal/hostof"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

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
	relays  relays
	// maxFrame is Options.MaxFrame.
	maxFrame int64
	// errorTexts is Options.ErrorTexts.
	errorTexts bool
	// authorizes reports whether a class has an Authorize function.
	authorizes bool
}

// Open opens the store in dir, creating it if necessary, and starts delivering the due alarms. The
// caller must close the host.
//
// Errors: [ErrConflict] if another host has the store open, and for a standby that was not promoted; [ErrDamaged] for an unknown format, and for a directory, or
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
	h.reads.LogTo(h.log)
	ro := o.runtime(h.sockets.Count)
	ro.Owner, h.maxFrame = h, limits.MaxFrame
	ro.Ended = func(id ID, why *Fenced, mode EndMode) {
		h.relays.ended(id, why)
		h.sockets.Ended(id, why, mode)
	}
	ro.Abandoned = func() {
		h.relays.close()
		h.sockets.Abandon()
	}
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
// rest, and reports their number to Listener.Failed and the log: no call of Service begins after Close has returned.
func (h *Host) Close() error {
	err := h.rt.Close()
	h.relays.close()
	return errors.Join(err, h.sockets.Close())
}

// Err returns the cause of the store's failure, or nil. A store that failed to sync acknowledges no more writes, and
// the host closes itself. All acknowledged writes are there when the store is opened again.
func (h *Host) Err() error { return h.rt.Err() }

// Failed is closed when the store has failed.
func (h *Host) Failed() <-chan struct{} { return h.rt.Failed() }

// Closing is closed when Close begins, even if the host closes itself after a failure of the store. HTTP handlers that
// wait for something other than an object should then end their response.
func (h *Host) Closing() <-chan struct{} { return h.rt.Closing() }

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

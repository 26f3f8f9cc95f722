package objectstore

// Output is something that leaves an object. It is released exactly once, by
// the committer or by the goroutine that hands over. With an error it must not
// leave. Release is constant work, never blocks and runs no user code.
type Output interface {
	// Release lets it leave, or tells it that it must not.
	Release(err error)
}

// maxLead is how often a goroutine that handed over looks for outputs that came
// while it was releasing. Beyond that the committer goes on: nobody works for
// others for ever.
const maxLead = 64

// lead releases what may leave. The caller set r.releasing and holds no lock.
func (r *Range) lead() {
	for i := 0; ; i++ {
		more, clean := r.pass(r.leaving(), false)
		switch {
		case clean:
			r.store.queue.visit(visit{r: r})
			return
		case !more:
			return
		case i >= maxLead && r.store.queue.visit(visit{r: r, release: true}):
			return
		}
	}
}

// leaving takes what may leave now.
func (r *Range) leaving() []emission {
	r.mu.Lock()
	defer r.mu.Unlock()
	outs := r.out
	r.out = nil
	return outs
}

// pass releases outs, which nobody else has, in order. With more, others may
// leave by now and the caller is still the one to release them. With clean,
// onClean is to be called: because the range became clean and either somebody
// asked or the caller always wants to know. Only the one who set r.releasing, or
// was asked to go on by a visit, may call it.
func (r *Range) pass(outs []emission, always bool) (more, clean bool) {
	if len(outs) > 0 {
		var err error
		if !r.store.log.Valid() {
			err = ErrFenced
		}
		release(outs, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.out) > 0 {
		return true, false
	}
	r.releasing = false
	return false, (always || r.wantClean) && r.becameCleanLocked()
}

// becameCleanLocked says whether the range is clean and somebody listens.
func (r *Range) becameCleanLocked() bool {
	if !r.cleanLocked() {
		return false
	}
	r.wantClean = false
	return r.onClean != nil
}

func release(outs []emission, err error) {
	for i := range outs {
		outs[i].out.Release(err)
	}
	clear(outs)
}

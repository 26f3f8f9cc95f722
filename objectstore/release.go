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
	for i := 0; r.pass(r.leaving()); i++ {
		if i >= maxLead && r.store.queue.goOn(r) {
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

// pass releases outs, which nobody else has, in order. It returns true if others
// may leave by now: the caller is still the one to release them. Only the one who
// set r.releasing, or was asked to go on for that one, may call it.
func (r *Range) pass(outs []emission) (more bool) {
	if len(outs) > 0 {
		var err error
		if !r.store.log.Valid() {
			err = ErrFenced
		}
		release(outs, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releasing = len(r.out) > 0
	return r.releasing
}

func release(outs []emission, err error) {
	for i := range outs {
		outs[i].out.Release(err)
	}
	clear(outs)
}

// releaseDropped releases the outputs of a generation that was taken back. The caller
// has incremented r.dropping.
func (r *Range) releaseDropped(outs []emission, err error) {
	release(outs, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropping--
}

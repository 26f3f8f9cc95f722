package objectstore

// Full says whether Throttle would wait now.
func (r *Range) Full() bool {
	if r.store.undurable.load() > r.store.opts.MaxHostBytes {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.undurableLocked() > r.store.opts.MaxObjectBytes
}

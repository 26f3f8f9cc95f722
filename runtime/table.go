package runtime

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"
)

const shardCount = 64

// table maps names to the objects of a class that are in memory.
type table struct {
	seed   maphash.Seed
	shards [shardCount]shard
}

// shard is a part of a table. It finds objects by the hash of their name: unlike a string,
// a hash has no pointer for the garbage collector to follow.
type shard struct {
	mu       sync.Mutex // order: before no other lock; released before an object's is taken
	objects  map[uint64]*object
	collided map[string]*object // objects that were added when another one had their hash
	peak     int                // the largest number of objects: the map keeps room for peak objects
}

// minShrunk is the largest size of a map that a shard keeps in any case.
const minShrunk = 64

func (s *shard) getLocked(hash uint64, name string) *object {
	if o := s.objects[hash]; o != nil && o.name == name {
		return o
	}
	return s.collided[name]
}

func (s *shard) putLocked(hash uint64, o *object) {
	switch {
	case s.objects == nil:
		s.objects = map[uint64]*object{hash: o}
	case s.objects[hash] == nil:
		s.objects[hash] = o
	case s.collided == nil:
		s.collided = map[string]*object{o.name: o}
	default:
		s.collided[o.name] = o
	}
}

// removeLocked removes an object. It replaces the map when most of the objects that it grew
// for have left.
func (s *shard) removeLocked(hash uint64, o *object) {
	if s.collided[o.name] == o {
		delete(s.collided, o.name)
		return
	}
	if s.objects[hash] != o {
		return
	}
	s.peak = max(s.peak, len(s.objects))
	delete(s.objects, hash)
	if s.peak > minShrunk && len(s.objects) < s.peak/4 {
		s.objects, s.peak = maps.Collect(maps.All(s.objects)), len(s.objects)
	}
}

// allLocked yields the objects, in no order.
func (s *shard) allLocked(yield func(*object) bool) {
	for _, o := range s.objects {
		if !yield(o) {
			return
		}
	}
	for _, o := range s.collided {
		if !yield(o) {
			return
		}
	}
}

// of returns the shard of a name, and its hash.
func (t *table) of(name string) (*shard, uint64) {
	hash := maphash.String(t.seed, name)
	return &t.shards[hash%shardCount], hash
}

// objectOf returns the table entry of a name, and makes it if there is none.
func (c *class) objectOf(name string) *object {
	s, hash := c.of(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.getLocked(hash, name)
	if o == nil {
		o = &object{class: c, name: name}
		s.putLocked(hash, o)
	}
	return o
}

// lookup returns the table entry of a name, or nil if the object is not in memory.
func (t *table) lookup(name string) *object {
	s, hash := t.of(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.getLocked(hash, name)
}

// forget removes an object from the table.
func (t *table) forget(o *object) {
	s, hash := t.of(o.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(hash, o)
}

// lookup returns the table entry of id, or nil if the object is not in memory.
func (h *Host) lookup(id ID) *object {
	if c := h.classes[id.Class]; c != nil {
		return c.lookup(id.Name)
	}
	return nil
}

// all lists the objects in memory.
func (h *Host) all() []*object {
	var os []*object
	for _, c := range h.bound {
		for i := range c.shards {
			s := &c.shards[i]
			s.mu.Lock()
			os = slices.AppendSeq(os, s.allLocked)
			s.mu.Unlock()
		}
	}
	return os
}

// shardsInAll returns how many shards a host has.
func (h *Host) shardsInAll() int { return shardCount * len(h.bound) }

// sample returns all objects if they are few, otherwise one object each of sampleSize
// shards; the order of a map is random enough.
func (h *Host) sample() []*object {
	if h.incarnations.Load() <= 4*sampleSize {
		return h.all()
	}
	os := make([]*object, 0, sampleSize)
	for range h.shardsInAll() {
		n := int(h.sampled.Add(1) % uint64(h.shardsInAll()))
		s := &h.bound[n%len(h.bound)].shards[n/len(h.bound)] // of another class each time
		s.mu.Lock()
		for o := range s.allLocked {
			os = append(os, o)
			break
		}
		s.mu.Unlock()
		if len(os) == sampleSize {
			break
		}
	}
	return os
}

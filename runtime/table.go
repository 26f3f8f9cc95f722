package runtime

import (
	"hash/maphash"
	"maps"
	"sync"
)

const shardCount = 64

// table is the objects of a class that are in memory, by name.
type table struct {
	seed   maphash.Seed
	shards [shardCount]shard
}

// shard is a part of a table.
type shard struct {
	mu      sync.Mutex // order: before no other lock; released before an object's is taken
	objects map[string]*object
	most    int // that the map has held: it keeps room for them
}

// minShrunk is the size below which a shard keeps the room that it has.
const minShrunk = 64

// removeLocked takes an object out, and gives room back that most of the objects which
// it was for have left.
func (s *shard) removeLocked(name string) {
	s.most = max(s.most, len(s.objects))
	delete(s.objects, name)
	if s.most > minShrunk && len(s.objects) < s.most/4 {
		s.objects, s.most = maps.Collect(maps.All(s.objects)), len(s.objects)
	}
}

func (t *table) shardOf(name string) *shard {
	return &t.shards[maphash.String(t.seed, name)%shardCount]
}

// objectOf returns the table entry of a name, which it makes if there is none.
func (c *class) objectOf(name string) *object {
	s := c.shardOf(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[name]
	if o == nil {
		o = &object{class: c, name: name}
		if s.objects == nil {
			s.objects = map[string]*object{}
		}
		s.objects[name] = o
	}
	return o
}

// lookup returns the table entry of a name, or nil if the object is not in memory.
func (t *table) lookup(name string) *object {
	s := t.shardOf(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[name]
}

// forget takes an object that is gone out of the table.
func (t *table) forget(o *object) {
	s := t.shardOf(o.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[o.name] == o {
		s.removeLocked(o.name)
	}
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
			for _, o := range s.objects {
				os = append(os, o)
			}
			s.mu.Unlock()
		}
	}
	return os
}

// shardsInAll is how many shards a host has.
func (h *Host) shardsInAll() int { return shardCount * len(h.bound) }

// sample returns all objects if they are few, else one each of sampleSize shards;
// the order of a map is random enough.
func (h *Host) sample() []*object {
	if h.lives.Load() <= 4*sampleSize {
		return h.all()
	}
	os := make([]*object, 0, sampleSize)
	for range h.shardsInAll() {
		n := int(h.sampled.Add(1) % uint64(h.shardsInAll()))
		s := &h.bound[n/shardCount].shards[n%shardCount]
		s.mu.Lock()
		for _, o := range s.objects {
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

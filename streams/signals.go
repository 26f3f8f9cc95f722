package streams

import "sync"

// signals wakes the readers that wait for a change of a stream. All objects of a class share one, in all of their incarnations: a reader
// needs no object in memory.
//
// No reader misses a change. A reader joins a topic before it reads, and the read is an event of the object. So that event reads
// the change, or a later event makes it. A later event finds the topic (watched), and wakes it when the change is durable.
type signals struct {
	mu     sync.Mutex
	topics map[string]*topic // by the name of the stream, while it has readers
}

// topic is the present wait for a change of a stream. It ends with the next change.
type topic struct {
	changed chan struct{} // closed by wake
	readers int
}

func newSignals() *signals { return &signals{topics: map[string]*topic{}} }

// join adds a reader, which must leave.
func (s *signals) join(name string) *topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[name]
	if t == nil {
		t = &topic{changed: make(chan struct{})}
		s.topics[name] = t
	}
	t.readers++
	return t
}

// leave removes a reader of a topic, which may have ended.
func (s *signals) leave(name string, t *topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.readers--; t.readers == 0 && s.topics[name] == t {
		delete(s.topics, name)
	}
}

// watched reports whether the stream has readers.
func (s *signals) watched(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.topics[name] != nil
}

// wake ends the stream's topic.
func (s *signals) wake(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topics[name]; t != nil {
		close(t.changed)
		delete(s.topics, name)
	}
}

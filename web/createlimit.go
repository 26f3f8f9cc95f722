package web

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/dohost/dohost"
)

const (
	// maxAddresses is the number of addresses that a createLimit counts one by one. Further clients share one budget.
	maxAddresses = 10_000
	ipv6Network  = 64 // bits of the network that usually belongs to one client
)

// createLimit bounds the number of objects that each remote address creates, with one token
// bucket for each address.
type createLimit struct {
	perMinute float64 // also the size of a bucket; negative: no bound

	mu      sync.Mutex
	buckets map[netip.Prefix]bucket
	rest    bucket // shared by the addresses without a bucket
}

// bucket is a token bucket, which refills with time.
type bucket struct {
	spent float64
	at    time.Time
}

func newCreateLimit(perMinute int) *createLimit {
	return &createLimit{perMinute: float64(perMinute), buckets: map[netip.Prefix]bucket{}}
}

// watch makes the host check the limit for each object that a request would create.
func (l *createLimit) watch(r *http.Request) *http.Request {
	if l.perMinute < 0 {
		return r
	}
	return r.WithContext(dohost.CheckCreation(r.Context(), func(q *dohost.AccessRequest) error {
		if l.allow(networkOf(q.Request.RemoteAddr), time.Now()) {
			return nil
		}
		return dohost.ErrOverloaded
	}))
}

// allow reports whether an address may create one more object, and counts it.
func (l *createLimit) allow(addr netip.Prefix, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, known := l.buckets[addr]
	if !known && len(l.buckets) >= maxAddresses {
		l.sweepLocked(now)
		if len(l.buckets) >= maxAddresses {
			return l.rest.spend(l.perMinute, now)
		}
	}
	ok := b.spend(l.perMinute, now)
	l.buckets[addr] = b
	return ok
}

// sweepLocked drops the full buckets.
func (l *createLimit) sweepLocked(now time.Time) {
	for addr, b := range l.buckets {
		if b.left(l.perMinute, now) >= l.perMinute {
			delete(l.buckets, addr)
		}
	}
}

func (b *bucket) left(perMinute float64, now time.Time) float64 {
	return min(perMinute, perMinute-b.spent+now.Sub(b.at).Minutes()*perMinute)
}

func (b *bucket) spend(perMinute float64, now time.Time) bool {
	left := b.left(perMinute, now)
	if left < 1 {
		return false
	}
	b.spent, b.at = perMinute-left+1, now
	return true
}

// networkOf returns the network of a remote address, which counts as one client. Other addresses, such
// as those of Unix sockets, count as one client together.
func networkOf(remote string) netip.Prefix {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = ipv6Network
	}
	network, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return network
}

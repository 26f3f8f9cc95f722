package web

import (
	"net/netip"
	"testing"
	"time"
)

func TestCreateLimitRefills(t *testing.T) {
	l, now := newCreateLimit(60), time.Unix(1e9, 0)
	a, b := networkOf("192.0.2.1:1"), networkOf("192.0.2.2:1")
	count := func(addr netip.Prefix) (n int) {
		for l.allow(addr, now) {
			n++
		}
		return n
	}
	for _, step := range []struct {
		pass time.Duration
		want int
	}{{0, 60}, {0, 0}, {500 * time.Millisecond, 0}, {500 * time.Millisecond, 1}, {10 * time.Second, 10}, {time.Hour, 60}} {
		now = now.Add(step.pass)
		if got := count(a); got != step.want {
			t.Errorf("after %v: %d objects, want %d", step.pass, got, step.want)
		}
	}
	if got := count(b); got != 60 {
		t.Errorf("another address: %d objects, want 60", got)
	}
}

func TestCreateLimitBoundsItsMemory(t *testing.T) {
	l, now := newCreateLimit(2), time.Unix(1e9, 0)
	addr := func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
	}
	allowed := 0
	for i := range maxAddresses + 100 {
		if l.allow(addr(i), now) {
			allowed++
		}
	}
	if allowed != maxAddresses+2 || len(l.buckets) != maxAddresses {
		t.Errorf("%d objects of %d addresses, want %d of %d", allowed, len(l.buckets), maxAddresses+2, maxAddresses)
	}
	now = now.Add(time.Minute)
	if !l.allow(addr(maxAddresses+1), now) || len(l.buckets) != 1 {
		t.Errorf("%d addresses are left when all budgets are full", len(l.buckets))
	}
}

func TestCreateLimitNetworkOfAddress(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1/32", "[::ffff:192.0.2.1]:80": "192.0.2.1/32", "[2001:db8:1:2:3::4%eth0]:80": "2001:db8:1:2::/64",
		"@": "invalid Prefix", "": "invalid Prefix",
	} {
		if got := networkOf(remote).String(); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}

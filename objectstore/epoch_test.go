package objectstore

import (
	"math"
	"strings"
	"testing"
)

func TestEpochString(t *testing.T) {
	for e, want := range map[Epoch]string{
		{}: "00000000.0.0",
		{Fork: 0x5f0c3a91, Host: 3, Incarnation: 17}:     "5f0c3a91.3.17",
		{math.MaxUint32, math.MaxUint64, math.MaxUint64}: "ffffffff.18446744073709551615.18446744073709551615",
	} {
		if got := e.String(); got != want {
			t.Errorf("%#v is %q, want %q", e, got, want)
		}
		next := e
		next.Host++
		if p := e.HostPrefix(); !strings.HasPrefix(want, p) || strings.HasPrefix(next.String(), p) {
			t.Errorf("the prefix of the host of %q is %q", want, p)
		}
	}
	if e := (Epoch{Host: 1, Incarnation: 1}); strings.HasPrefix(Epoch{Host: 11}.String(), e.HostPrefix()) {
		t.Error("the prefix of host 1 is that of host 11")
	}
}

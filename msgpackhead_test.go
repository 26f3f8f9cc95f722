package dohost

import "testing"

// TestHeadOfLongValueIsRefused has lengths around the longest one.
func TestHeadOfLongValueIsRefused(t *testing.T) {
	for code, known := range map[byte]headKind{0xc6: headBytes, 0xdb: headBytes, 0xdd: headList, 0xdf: headMap} {
		if h := head([]byte{code, 0x7f, 0xff, 0xff, 0xff}); h.kind != known || h.size != 5 {
			t.Errorf("%x with 1<<31 - 1: %+v", code, h)
		}
		if h := head([]byte{code, 0x80, 0, 0, 0}); h != (header{}) {
			t.Errorf("%x with 1<<31: %+v", code, h)
		}
	}
}

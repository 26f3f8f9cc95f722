package main

import (
	"strings"
	"testing"

	"github.com/dohost/dohost"
)

// TestVerifyNoticesParcels sorts ten parcels, and then inserts one that nothing sorts, or counts one that was not inserted.
func TestVerifyNoticesParcels(t *testing.T) {
	b := small(t)
	for want, fault := range map[string]func(s *rowSide) (more int64, err error){
		"": func(*rowSide) (int64, error) { return 0, nil },
		"agent 0 has 1 parcels that are not sorted": func(s *rowSide) (int64, error) {
			_, err := dohost.Call(t.Context(), sorters.Get(s, name(0)), (*sorter).insert, 99)
			return 0, err
		},
		"the agents have 10 receipts, and 11 parcels were sorted": func(*rowSide) (int64, error) { return 1, nil },
	} {
		s, err := b.openRows()
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if err := s.one(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		more, err := fault(s)
		if err != nil {
			t.Fatal(err)
		}
		err = s.verify(t.Context(), 10+more)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}

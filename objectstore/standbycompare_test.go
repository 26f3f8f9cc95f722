package objectstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// newestObject returns the newest object of records of an archive, after it has deleted newer ones that have one record. It also returns
// the size of a frame in it.
func newestObject(t *testing.T, a *memArchive) (o archivedRecords, size int) {
	t.Helper()
	list, err := a.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	records := parseObjects(list).records
	for len(records) > 0 && records[len(records)-1].First == records[len(records)-1].Last {
		delete(a.objects, records[len(records)-1].Name.String())
		records = records[:len(records)-1]
	}
	if len(records) == 0 {
		t.Fatal("no object has two records")
	}
	o = records[len(records)-1]
	return o, len(a.objects[o.Name.String()]) / int(o.Last-o.First+1)
}

// forgedNewest returns an archive with another newest record, which was made a nanosecond later.
func forgedNewest(whole *memArchive, o archivedRecords, size int) *memArchive {
	forged, name := whole.clone(), o.Name.String()
	at := size * int(o.Last-o.First)
	b := slices.Clone(forged.objects[name])
	forged.objects[name] = append(b[:at:at], changed(b[at:], 56)...)
	return forged
}

// TestStandbyComparesAgainAfterALookWithoutItsRecord has an archive that loses the last applied record, and gets another one instead.
func TestStandbyComparesAgainAfterALookWithoutItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := archiveOf(t, 12)
		o, size := newestObject(t, whole)
		forged, a := forgedNewest(whole, o, size), whole.clone()
		y := standbyOf(t, NewMemFS(), a)
		y.wantWaits(t, "")
		differs := fmt.Sprintf("record %d of the archive differs from the record of the standby", o.Last)
		a.set(func(a *memArchive) { delete(a.objects, o.Name.String()) })
		for range 2 {
			y.wantWaits(t, fmt.Sprintf("the standby has record %d", o.Last))
		}
		a.set(func(a *memArchive) { a.objects = forged.objects })
		if err := y.runPass(t); !errors.Is(err, ErrForeignArchive) || !strings.Contains(err.Error(), differs) {
			t.Errorf("another record came: %v; want %q", err, differs)
		}
		a.set(func(a *memArchive) { a.objects = whole.objects })
		y.wantWaits(t, "")
		a.set(func(a *memArchive) { a.objects = forged.objects })
		if _, err := y.Promote(t.Context()); !errors.Is(err, ErrForeignArchive) || !strings.Contains(err.Error(), differs) {
			t.Errorf("promoted with another record in the archive: %v; want %q", err, differs)
		}
	})
}

// TestStandbyRefusesAnObjectWithoutTheRecordOfItsName has an object that ends before the last record of its name.
func TestStandbyRefusesAnObjectWithoutTheRecordOfItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, fs := archiveOf(t, 12), NewMemFS()
		o, size := newestObject(t, a)
		y := standbyOf(t, fs, a)
		y.wantWaits(t, "")
		if err := y.Close(); err != nil {
			t.Fatal(err)
		}
		a.set(func(a *memArchive) {
			content := a.objects[o.Name.String()]
			a.objects[o.Name.String()] = content[:len(content)-size]
		})
		y = standbyOf(t, fs, a)
		text := fmt.Sprintf("object %v: record %d: it is missing", o.Name, o.Last)
		if err := y.runPass(t); !errors.Is(err, ErrDamagedArchive) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v; want %q", err, text)
		}
		if _, err := y.Promote(t.Context()); !errors.Is(err, ErrDamagedArchive) {
			t.Errorf("promoted: %v", err)
		}
	})
}

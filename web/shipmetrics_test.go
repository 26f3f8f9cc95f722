package web_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
)

// fullArchive takes no object.
type fullArchive struct{ *dohost.DirArchive }

func (fullArchive) Put(context.Context, string, []byte) error { return errors.New("full") }

// TestShippingMetricsAreTheLag has records that the archive does not take.
func TestShippingMetricsAreTheLag(t *testing.T) {
	a, err := dohost.OpenDirArchive(filepath.Join(t.TempDir(), "archive"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	m := web.NewMetrics()
	o := &dohost.Options{Ship: fullArchive{a}, Listener: m.Listener()}
	h := open(t, o)
	m.Watch(h)
	s := start(t, web.Admin(h, &web.AdminOptions{Metrics: m}))
	for until := time.Now().Add(time.Minute); h.Stats().Ship.Failures == 0; { // the first Put
		if time.Now().After(until) {
			t.Fatal("no Put has failed")
		}
		call(t, h, "thing/a", "put", `"x"`)
	}
	for range 5 {
		call(t, h, "thing/a", "put", `"x"`)
	}
	text, err := io.ReadAll(s.do("GET", "/metrics", "").Body)
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string) float64 {
		found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(text)
		if found == nil {
			t.Fatalf("no metric %s in\n%s", name, text)
		}
		v, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	st := h.Stats().Ship
	if n := value("dohost_ship_lag_records"); n != float64(st.Records) || n < 5 {
		t.Errorf("the lag is %v records, want %d", n, st.Records)
	}
	if n := value("dohost_ship_lag_bytes"); n != float64(st.Bytes) || n < 5*100 {
		t.Errorf("the lag is %v bytes, want %d", n, st.Bytes)
	}
	if s := value("dohost_ship_lag_seconds"); s <= 0 || s > st.Lag.Seconds() {
		t.Errorf("the lag is %v s, and was %v a moment later", s, st.Lag)
	}
	if base, failures := value("dohost_ship_needs_base"), value("dohost_ship_failures_total"); base != 1 || failures < 1 {
		t.Errorf("a base is needed: %v, after %v failures", base, failures)
	}
	if n := value("dohost_ship_bytes_total"); n != 0 {
		t.Errorf("%v bytes were shipped", n)
	}
}

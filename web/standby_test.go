package web_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
	"github.com/dohost/dohost/web"
)

// standbyServer is a standby of a folder, with its listener.
type standbyServer struct {
	*server
	y      *dohost.Standby
	folder string
	log    bytes.Buffer // of requests that operators made
}

func startStandby(t *testing.T, tokens ...string) *standbyServer {
	t.Helper()
	root := t.TempDir()
	s := &standbyServer{folder: filepath.Join(root, "shipped")}
	var err error
	s.y, err = dohost.OpenStandby(filepath.Join(root, "standby"), dohost.ReadDirArchive(s.folder), nil, testClass(), noEntryClass())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.y.Close(); err != nil {
			t.Error(err)
		}
	})
	s.server = start(t, web.StandbyAdmin(s.y, &web.AdminOptions{Logger: slog.New(slog.NewTextHandler(&s.log, nil)), Tokens: tokens}))
	return s
}

// ship fills the folder with the records of a host with one object, which has an alarm.
func (s *standbyServer) ship(alarm time.Time) {
	s.t.Helper()
	a, err := dohost.OpenDirArchive(s.folder)
	if err != nil {
		s.t.Fatal(err)
	}
	h := open(s.t, &dohost.Options{Ship: a})
	call(s.t, h, "thing/a", "put", `"x"`)
	for h.Stats().Ship.NeedsBase {
		call(s.t, h, "thing/a", "put", `"y"`)
	}
	call(s.t, h, "thing/b", "put", `"z"`)
	if err := h.SetAlarm(s.t.Context(), testObjects.Get(h, "b").ID(), alarm); err != nil {
		s.t.Fatal(err)
	}
	if err := errors.Join(h.Close(), a.Close()); err != nil {
		s.t.Fatal(err)
	}
}

// follow follows the folder until the standby has all of it.
func (s *standbyServer) follow() {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.y.Follow(ctx) }()
	for st := s.y.Status(); st.Record == 0 || st.Lag > 0; st = s.y.Status() {
		s.do("GET", "/healthz", "")
	}
	stop()
	if err := <-ended; err != nil {
		s.t.Error(err)
	}
}

func (s *standbyServer) wantMetrics(values map[string]string) {
	s.t.Helper()
	text, _ := s.text("/metrics")
	for name, value := range values {
		if !strings.Contains(text, "\ndohost_standby_"+name+" "+value+"\n") {
			s.t.Errorf("dohost_standby_%s is not %s:\n%s", name, value, text)
		}
	}
}

// TestStandbyAdminWithoutABase asks a standby of an absent folder.
func TestStandbyAdminWithoutABase(t *testing.T) {
	s := startStandby(t)
	s.want("GET", "/readyz", "", 200, `{"status":"ok"}`+"\n") // before its first look
	e, _ := s.wantError("POST", "/v1/promote", "", 409, "standby_lags")
	if !strings.Contains(e.Message, "no complete base yet") {
		t.Errorf("promote: %s", e.Message)
	}
	s.want("GET", "/healthz", "", 200, `{"status":"ok"}`+"\n")
	s.wantUnready("/readyz", "not_ready")
	if text, _ := s.text("/readyz"); !strings.Contains(text, "the standby waits: the archive has no complete base yet") {
		t.Errorf("readyz: %s", text)
	}
	e, _ = s.wantError("POST", "/v1/promote?as_is=true", "", 409, "not_promoted")
	if !strings.Contains(e.Message, "the standby has no state yet") {
		t.Errorf("promote as it is: %s", e.Message)
	}
	if st := getJSON[adminapi.Standby](s.server, "GET", "/v1/standby", ""); st.Store != "" || st.Made != nil || st.Record != 0 || st.Waiting == "" || st.Promoted {
		t.Errorf("the status is %+v", st)
	}
	if l := getJSON[adminapi.ObjectList](s.server, "GET", "/v1/objects?live=true", ""); l.Objects == nil || len(l.Objects) > 0 {
		t.Errorf("in memory: %+v", l)
	}
	for _, path := range []string{"/v1/objects", "/v1/objects/thing/a", "/v1/objects/thing/a/export"} {
		s.wantError("GET", path, "", 404, "no_base")
	}
	s.wantMetrics(map[string]string{
		"record": "0", "archived_record": "0", "record_timestamp_seconds": "0", "lag_records": "0", "lag_seconds": "0", "waiting": "1",
	})
}

// TestStandbyAdmin asks a standby with a state, and promotes it.
func TestStandbyAdmin(t *testing.T) {
	s, due := startStandby(t), time.Now().Add(time.Hour).UTC()
	s.ship(due)
	s.follow()
	st := getJSON[adminapi.Standby](s.server, "GET", "/v1/standby", "")
	own := s.y.Status()
	if st.Store != own.Identity.String() || st.Record == 0 || st.Record != own.Record || st.Archived != own.Record || st.Lag != 0 || st.LagSeconds != 0 ||
		st.Made == nil || !st.Made.Equal(own.Time) || st.Waiting != "" || st.Promoted {
		t.Errorf("the status is %+v, want %+v", st, own)
	}
	s.want("GET", "/readyz", "", 200, `{"status":"ok"}`+"\n")
	s.wantMetrics(map[string]string{
		"record": fmt.Sprint(own.Record), "archived_record": fmt.Sprint(own.Record), "lag_records": "0", "lag_seconds": "0", "waiting": "0",
		"record_timestamp_seconds": fmt.Sprint(float64(own.Time.UnixNano()) / 1e9),
	})
	if l := getJSON[adminapi.ObjectList](s.server, "GET", "/v1/objects", ""); ids(l) != "thing/a thing/b" {
		t.Errorf("the objects are %s", ids(l))
	}
	if l := getJSON[adminapi.ObjectList](s.server, "GET", "/v1/objects?live=true", ""); l.Objects == nil || len(l.Objects) > 0 {
		t.Errorf("in memory: %+v", l)
	}
	if o := getJSON[adminapi.Object](s.server, "GET", "/v1/objects/thing/a", ""); !o.Durable || o.Live {
		t.Errorf("the object is %+v", o)
	}
	if a := getJSON[adminapi.Alarm](s.server, "GET", "/v1/objects/thing/b/alarm", ""); a.At == nil || a.At.Sub(due).Abs() > time.Millisecond {
		t.Errorf("the alarm is %+v, want %v", a, due)
	}
	if b, err := io.ReadAll(s.do("GET", "/v1/objects/thing/a/export", "").Body); err != nil || len(b) == 0 {
		t.Errorf("the export has %d bytes, %v", len(b), err)
	}
	s.do("GET", "/v1/objects/thing/a/details", "")
	for _, r := range []struct{ method, path string }{
		{"POST", "/v1/objects/thing/a/evict"}, {"PUT", "/v1/objects/thing/a/alarm"}, {"DELETE", "/v1/objects/thing/a/alarm"},
		{"POST", "/v1/objects/thing/a/import"}, {"GET", "/v1/objects/thing/a/pins"}, {"GET", "/v1/objects/thing/a/sockets"},
		{"POST", "/v1/objects/thing/a/operate"}, {"POST", "/v1/objects/thing/a/restore"}, {"POST", "/v1/backup"}, {"POST", "/v1/kill"},
		{"GET", "/v1/parked"}, {"GET", "/v1/promote"}, {"POST", "/v1/standby"}, {"GET", "/"}, {"GET", "/debug/pprof/heap"},
	} {
		if e, _ := s.wantError(r.method, r.path, "", 404, "standby"); !strings.Contains(e.Message, r.method+" "+r.path) {
			t.Errorf("%s %s: %s", r.method, r.path, e.Message)
		}
	}
	st = getJSON[adminapi.Standby](s.server, "POST", "/v1/promote", "")
	if !st.Promoted || st.Record != own.Record || st.Store != own.Identity.String() {
		t.Errorf("promoted: %+v", st)
	}
	if !strings.Contains(s.log.String(), "method=POST path=/v1/promote") || strings.Contains(s.log.String(), "method=GET path=/v1/standby ") {
		t.Errorf("the log of operators is %s", &s.log)
	}
}

// TestStandbyAdminPromotesAsIs promotes a standby that follows a folder which lost its files.
func TestStandbyAdminPromotesAsIs(t *testing.T) {
	s := startStandby(t)
	s.ship(time.Now().Add(time.Hour))
	s.follow()
	files, err := filepath.Glob(filepath.Join(s.folder, "*.*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	e, _ := s.wantError("POST", "/v1/promote?as_is=false", "", 409, "standby_lags")
	if !strings.Contains(e.Message, "the newest record of the archive is 0") {
		t.Errorf("promote: %s", e.Message)
	}
	s.wantMetrics(map[string]string{"waiting": "1", "archived_record": "0"})
	if st := getJSON[adminapi.Standby](s.server, "POST", "/v1/promote?as_is=true", ""); !st.Promoted {
		t.Errorf("promoted as it is: %+v", st)
	}
}

// TestStandbyAdminIsGuarded sends requests of other origins, and without a token.
func TestStandbyAdminIsGuarded(t *testing.T) {
	s := startStandby(t)
	s.header.Set("Host", "evil.example")
	s.wantError("GET", "/healthz", "", 403, "foreign_host")
	s.wantError("POST", "/v1/promote", "", 403, "foreign_host")
	s.header.Del("Host")
	s.header.Set("Origin", "http://evil.example")
	s.wantError("POST", "/v1/promote", "", 403, "foreign_origin")
	closed := startStandby(t, "secret-of-operators")
	for _, path := range []string{"/v1/standby", "/v1/objects", "/v1/objects/thing/a"} {
		if res := closed.do("GET", path, ""); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("GET %s without a token = %d", path, res.StatusCode)
		}
	}
	closed.header.Set("Authorization", "Bearer secret-of-operators")
	closed.wantError("POST", "/v1/promote", "", 409, "standby_lags")
}

// TestStandbyAdminReportsItsLag has a folder with a record that comes after missing ones.
func TestStandbyAdminReportsItsLag(t *testing.T) {
	s := startStandby(t)
	s.ship(time.Now().Add(time.Hour))
	s.follow()
	record := s.y.Status().Record
	if err := os.WriteFile(filepath.Join(s.folder, fmt.Sprintf("%016d.records.%016d", record+3, record+3)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e, _ := s.wantError("POST", "/v1/promote", "", 409, "standby_lags")
	why := fmt.Sprintf("records %d to %d are missing in the archive", record+1, record+2)
	if !strings.Contains(e.Message, why) {
		t.Errorf("promote: %s, want %q", e.Message, why)
	}
	if st := getJSON[adminapi.Standby](s.server, "GET", "/v1/standby", ""); st.Record != record || st.Archived != record+3 || st.Lag != 3 || st.LagSeconds <= 0 || st.Waiting != why {
		t.Errorf("the status is %+v, want a lag of 3 records, because %q", st, why)
	}
	s.wantMetrics(map[string]string{"record": fmt.Sprint(record), "archived_record": fmt.Sprint(record + 3), "lag_records": "3", "waiting": "1"})
	if text, _ := s.text("/metrics"); strings.Contains(text, "\ndohost_standby_lag_seconds 0\n") {
		t.Error("dohost_standby_lag_seconds is 0")
	}
}

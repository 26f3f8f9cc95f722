package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
	"github.com/dohost/dohost/web"
)

func call(t *testing.T, h *dohost.Host, id, method, arg string) {
	t.Helper()
	oid, err := dohost.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Invoke(t.Context(), oid, method, []byte(arg)); err != nil {
		t.Fatal(err)
	}
}

func getJSON[T any](s *server, method, path, body string) (v T) {
	s.t.Helper()
	res := s.do(method, path, body)
	b, err := io.ReadAll(res.Body)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("%s %s = %d %s, %v", method, path, res.StatusCode, b, err)
	}
	return v
}

func ids(l adminapi.ObjectList) string {
	var names []string
	for _, o := range l.Objects {
		names = append(names, o.ID)
	}
	return strings.Join(names, " ")
}

func TestAdminObjectListIsPaged(t *testing.T) {
	h := open(t, nil)
	s := start(t, web.Admin(h, nil))
	if l := getJSON[adminapi.ObjectList](s, "GET", "/v1/objects", ""); ids(l) != "" || l.Objects == nil {
		t.Errorf("an empty host lists %+v", l)
	}
	for _, name := range []string{"c", "a", "b/with slash"} {
		call(t, h, "thing/"+name, "put", `"x"`)
	}
	h.Evict(testObjects.Get(h, "a").ID(), dohost.EndFence)
	l := getJSON[adminapi.ObjectList](s, "GET", "/v1/objects?limit=2", "")
	if ids(l) != "thing/a thing/b/with slash" || l.Next != "thing/b/with slash" || l.Objects[0].Live || !l.Objects[1].Live {
		t.Errorf("first page %+v", l)
	}
	l = getJSON[adminapi.ObjectList](s, "GET", "/v1/objects?limit=2&after=thing%2Fb%2Fwith+slash", "")
	if ids(l) != "thing/c" || l.Next != "" {
		t.Errorf("second page %+v", l)
	}
	if l := getJSON[adminapi.ObjectList](s, "GET", "/v1/objects?class=mute", ""); ids(l) != "" {
		t.Errorf("another class %+v", l)
	}
	if l := getJSON[adminapi.ObjectList](s, "GET", "/v1/objects?live=true", ""); ids(l) != "thing/b/with slash thing/c" {
		t.Errorf("in memory %+v", l)
	}
	s.wantError("GET", "/v1/objects?limit=0", "", 400, "bad_limit")
	s.wantError("GET", "/v1/objects?after=x", "", 400, "bad_name")
}

func TestInspectionDoesNotWakeObjects(t *testing.T) {
	wakes := 0
	h := open(t, &dohost.Options{Listener: dohost.Listener{Waking: func(dohost.ID, dohost.Epoch) { wakes++ }}})
	s := start(t, web.Admin(h, nil))
	call(t, h, "thing/a", "put", `"x"`)
	id := testObjects.Get(h, "a").ID()
	h.Evict(id, dohost.EndFence)
	o := getJSON[adminapi.Object](s, "GET", "/v1/objects/thing/a", "")
	if !o.Durable || o.Live || o.Epoch != "" || len(o.Pins) > 0 {
		t.Errorf("a cold object: %+v", o)
	}
	getJSON[adminapi.Object](s, "GET", "/v1/objects/thing/a/pins", "")
	getJSON[adminapi.Alarm](s, "GET", "/v1/objects/thing/a/alarm", "")
	s.do("GET", "/v1/objects/thing/a/export", "")
	getJSON[adminapi.ObjectList](s, "GET", "/v1/objects", "")
	if o := getJSON[adminapi.Object](s, "GET", "/v1/objects/thing/none", ""); o.Durable || o.Live {
		t.Errorf("an absent object: %+v", o)
	}
	if wakes != 1 || h.LiveCount() != 0 {
		t.Errorf("%d wakes, %d live", wakes, h.LiveCount())
	}
}

func TestPinsReportTheirReasons(t *testing.T) {
	h := open(t, nil)
	s := start(t, web.Admin(h, nil))
	call(t, h, "thing/a", "pin", `"because"`)
	waitEnded := func(n int) adminapi.Object { // an event ends a little after it has answered
		for {
			if o := getJSON[adminapi.Object](s, "GET", "/v1/objects/thing/a", ""); len(o.Pins) == n || t.Failed() {
				return o
			}
		}
	}
	if o := waitEnded(1); o.Pins[0].Reason != "because" || o.Pins[0].For == 0 {
		t.Errorf("pins %+v", o)
	}
	if o := getJSON[adminapi.Object](s, "GET", "/v1/objects/thing/a/pins", ""); len(o.Pins) != 1 || o.Pins[0].Reason != "because" {
		t.Errorf("pins %+v", o)
	}
	done := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		done <- testObjects.Get(h, "a").Do(t.Context(), func(ctx context.Context, _ *testObject) error {
			close(started)
			_, _, err := dohost.Recv(ctx, unblock)
			return err
		})
	}()
	<-started
	o := getJSON[adminapi.Object](s, "GET", "/v1/objects/thing/a", "")
	if len(o.Pins) != 2 || o.Pins[0].Reason != "event Do" || !o.Live || o.Epoch == "" || o.Idle != 0 {
		t.Errorf("pins %+v", o)
	}
	if e := getJSON[adminapi.Evicted](s, "POST", "/v1/objects/thing/a/evict?mode=crash", ""); !e.Evicted {
		t.Error("nothing to evict")
	}
	if err := <-done; !errors.Is(err, dohost.ErrFenced) {
		t.Errorf("the evicted call: %v", err)
	}
	if e := getJSON[adminapi.Evicted](s, "POST", "/v1/objects/thing/a/evict", ""); e.Evicted {
		t.Error("evicted twice")
	}
	s.wantError("POST", "/v1/objects/thing/a/evict?mode=hard", "", 400, "bad_argument")
}

func TestAlarmSetAndDeletedByOperator(t *testing.T) {
	h := open(t, nil)
	s := start(t, web.Admin(h, nil))
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond).UTC()
	set := getJSON[adminapi.Alarm](s, "PUT", "/v1/objects/thing/a/alarm", `{"at":"`+at.Format(time.RFC3339Nano)+`"}`)
	if set.At == nil || !set.At.Equal(at) {
		t.Errorf("set %v, want %v", set.At, at)
	}
	if o := getJSON[adminapi.Object](s, "GET", "/v1/objects/thing/a", ""); o.Alarm == nil || !o.Alarm.Equal(at) {
		t.Errorf("show says %v", o.Alarm)
	}
	getJSON[adminapi.Alarm](s, "DELETE", "/v1/objects/thing/a/alarm", "")
	if a := getJSON[adminapi.Alarm](s, "GET", "/v1/objects/thing/a/alarm", ""); a.At != nil {
		t.Errorf("deleted, but %v", a.At)
	}
	s.wantError("PUT", "/v1/objects/mute/a/alarm", `{"at":"2040-01-01T00:00:00Z"}`, 400, "no_alarm_handler")
	s.wantError("PUT", "/v1/objects/none/a/alarm", `{"at":"2040-01-01T00:00:00Z"}`, 404, "no_class")
	for _, body := range []string{"", "{}", `{"at":"tomorrow"}`, `{"at":"1969-01-01T00:00:00Z"}`} {
		s.wantError("PUT", "/v1/objects/thing/a/alarm", body, 400, "bad_argument")
	}
}

func TestExportAndImportOverHTTP(t *testing.T) {
	h := open(t, nil)
	s := start(t, web.Admin(h, nil))
	call(t, h, "thing/a", "put", `"x"`)
	res := s.do("GET", "/v1/objects/thing/a/export", "")
	export, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if o := getJSON[adminapi.Object](s, "POST", "/v1/objects/thing/b/import", string(export)); !o.Durable {
		t.Errorf("imported %+v", o)
	}
	v, err := h.Invoke(t.Context(), testObjects.Get(h, "b").ID(), "put", nil)
	if err != nil {
		t.Errorf("the copy: %s, %v", v, err)
	}
	again := s.do("GET", "/v1/objects/thing/a/export", "")
	if b, err := io.ReadAll(again.Body); err != nil || !bytes.Equal(b, export) {
		t.Errorf("the original has changed: %v", err)
	}
	s.wantError("POST", "/v1/objects/thing/a/import", string(export), 409, "exists")
	s.wantError("POST", "/v1/objects/thing/c/import", "rubbish", 400, "bad_export")
	s.wantError("POST", "/v1/objects/thing/c/import", string(export[:len(export)-1]), 400, "bad_export")
	s.wantError("POST", "/v1/objects/none/c/import", string(export), 404, "no_class")
	s.wantError("GET", "/v1/objects/thing/none/export", "", 404, "no_object")
	if ok, err := h.Exists(t.Context(), testObjects.Get(h, "c").ID()); ok || err != nil {
		t.Errorf("a failed import left something: %v", err)
	}
}

func TestBackupOverHTTP(t *testing.T) {
	h := open(t, nil)
	s := start(t, web.Admin(h, nil))
	call(t, h, "thing/a", "put", `"x"`)
	dir := filepath.Join(t.TempDir(), "copy")
	req, _ := json.Marshal(adminapi.BackupRequest{Dir: dir})
	getJSON[adminapi.BackupRequest](s, "POST", "/v1/backup", string(req))
	stats, err := dohost.CheckDir(t.Context(), dir, func(p dohost.CheckProblem) { t.Error(p) })
	if err != nil || stats.Objects != 1 {
		t.Errorf("the copy: %+v, %v", stats, err)
	}
	s.wantError("POST", "/v1/backup", string(req), 409, "exists")
	s.wantError("POST", "/v1/backup", "{}", 400, "bad_argument")
}

func TestAdminRefusesForeignHostsAndOrigins(t *testing.T) {
	h := open(t, nil)
	s := start(t, web.Admin(h, &web.AdminOptions{Hosts: []string{"ops.example"}}))
	own := strings.TrimPrefix(s.url, "http://")
	for _, tt := range []struct {
		host, origin, site string
		status             int
		code               string
	}{
		{own, "", "", 200, ""},
		{"localhost:1", "", "", 200, ""},
		{"[::1]:1", "", "", 200, ""},
		{"ops.example", "", "none", 200, ""},
		{own, s.url, "same-origin", 200, ""},
		{"evil.example", "", "", 403, "foreign_host"},
		{"127.0.0.1.evil.example", "", "", 403, "foreign_host"},
		{own, "http://evil.example", "", 403, "foreign_origin"},
		{own, "null", "", 403, "foreign_origin"},
		{own, "", "cross-site", 403, "foreign_origin"},
	} {
		s.header.Set("Host", tt.host)
		s.header.Del("Origin")
		if tt.origin != "" {
			s.header.Set("Origin", tt.origin)
		}
		s.header.Del("Sec-Fetch-Site")
		if tt.site != "" {
			s.header.Set("Sec-Fetch-Site", tt.site)
		}
		if tt.status == 200 {
			s.want("GET", "/healthz", "", 200, `{"status":"ok"}`+"\n")
		} else {
			s.wantError("GET", "/healthz", "", tt.status, tt.code)
			s.wantError("GET", "/debug/pprof/", "", tt.status, tt.code)
		}
	}
}

func TestHealthAndReadiness(t *testing.T) {
	h := open(t, nil)
	var notReady error
	s := start(t, web.Admin(h, &web.AdminOptions{Ready: func() error { return notReady }}))
	s.want("GET", "/readyz", "", 200, `{"status":"ok"}`+"\n")
	notReady = errors.New("closing")
	s.wantUnready("/readyz", "not_ready")
	s.want("GET", "/healthz", "", 200, `{"status":"ok"}`+"\n")
	s.wantError("GET", "/metrics", "", 404, "no_route")
	s.wantError("DELETE", "/v1/objects/thing/a", "", 404, "no_route")
	s.wantError("GET", "/v1/objects/thing", "", 404, "no_route")
	s.wantError("GET", "/v1/objects/thing/a%00/pins", "", 400, "bad_name")
	if res := s.do("GET", "/debug/pprof/goroutine?debug=1", ""); res.StatusCode != 200 {
		t.Errorf("pprof: %d", res.StatusCode)
	}
}

func (s *server) wantUnready(path, code string) {
	s.t.Helper()
	res := s.do("GET", path, "")
	var e dohost.ErrorBody
	if err := json.NewDecoder(res.Body).Decode(&e); err != nil || res.StatusCode != 503 || e.Code != code {
		s.t.Errorf("%s = %d %+v, %v", path, res.StatusCode, e, err)
	}
}

// The metrics have the tokens and the cost of a call of a model, of its class, and the outcomes of operations. A report with other values
// counts nothing.
func TestMetricsCountReportsOfServices(t *testing.T) {
	m := web.NewMetrics()
	report, id := m.Listener().Service, dohost.ID{Class: "thing", Name: "a"}
	for range 2 {
		report(id, "chat:model", slog.String("outcome", "completed"), slog.Int64("input_tokens", 1000), slog.Int64("output_tokens", 20), slog.Int64("cost", 1_500_000))
	}
	report(id, "chat:model", slog.String("outcome", "failed"), slog.Int64("input_tokens", -5), slog.String("cost", "much"))
	report(id, "delivery", slog.Int64("input_tokens", 7), slog.Int64("cost", 1_000_000)) // of a service of the program
	report(id, "ledger:unknown", slog.String("policy", "AtMostOnce"))
	report(id, "ledger:unknown", slog.String("policy", "AtMostOnce"))
	report(id, "ledger:resolved", slog.String("policy", "AtMostOnce"), slog.String("outcome", "not-done"))
	report(id, "delivery", slog.String("policy", "AtMostOnce"), slog.String("outcome", "done"))
	res := httptest.NewRecorder()
	m.ServeHTTP(res, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`dohost_model_tokens_total{class="thing",direction="input"} 2000`, `dohost_model_tokens_total{class="thing",direction="output"} 40`,
		`dohost_model_cost_total{class="thing"} 3`, `dohost_service_events_total{class="thing",event="chat:model",outcome="completed"} 2`,
		`dohost_operation_outcomes_total{class="thing",outcome="unknown",policy="AtMostOnce"} 2`,
		`dohost_operation_outcomes_total{class="thing",outcome="not-done",policy="AtMostOnce"} 1`,
	} {
		if !strings.Contains(res.Body.String(), want+"\n") {
			t.Errorf("the metrics have no %s", want)
		}
	}
	if text := res.Body.String(); strings.Contains(text, `outcome="done",policy`) {
		t.Errorf("a report of another service is counted: %s", text)
	}
}

func TestMetricsCountEventsAndResponses(t *testing.T) {
	m := web.NewMetrics()
	h := open(t, &dohost.Options{Listener: m.Listener()})
	m.Watch(h)
	pub := start(t, handler(h, &web.Options{Metrics: m}))
	s := start(t, web.Admin(h, &web.AdminOptions{Metrics: m}))
	pub.want("POST", "/objects/thing/a/put", `"x"`, 200, `"was put: x"`)
	pub.wantError("POST", "/objects/thing/a/panic", "", 500, "fenced")
	pub.do("GET", "/objects/thing/a/http/half", "")
	call(t, h, "thing/b", "put", `"x"`)
	if err := h.SetAlarm(t.Context(), testObjects.Get(h, "b").ID(), time.Now()); err != nil {
		t.Fatal(err)
	}
	wanted := []string{
		`dohost_alarm_lag_seconds_count{class="thing"} 1`,
		`dohost_wakes_total{class="thing"} 3`,
		`dohost_incarnations_ended_total{cause="panic",class="thing",place=""} 2`,
		`dohost_events_total{class="thing",result="ok"}`,
		`dohost_event_seconds_count{class="thing"}`,
		`dohost_http_responses_total{route="call",status="200"} 1`,
		`dohost_http_responses_total{route="call",status="500"} 1`,
		`dohost_http_responses_total{route="http",status="aborted"} 1`,
		"dohost_live_objects 1",
		"dohost_zombies 0",
		"dohost_store_failed 0",
		"dohost_store_damaged_blocks 0",
		"dohost_store_records_total",
		"dohost_read_budget_bytes 0", "dohost_read_budget_refused_total 0", "dohost_send_queue_bytes 0", "dohost_slow_sockets_total 0",
		"dohost_background_failures_total 0",
		"go_goroutines",
	}
	// The alarm's handler runs by itself, and the aborted response counts when its handler has ended.
	for until := time.Now().Add(time.Minute); ; {
		b, err := io.ReadAll(s.do("GET", "/metrics", "").Body)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		missing := slices.DeleteFunc(slices.Clone(wanted), func(want string) bool { return strings.Contains(text, want) })
		if len(missing) == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("no %q in\n%s", missing, text)
		}
	}
}

func TestMetricsCountZombiesAndEvictions(t *testing.T) {
	m := web.NewMetrics()
	h := open(t, &dohost.Options{Listener: m.Listener()})
	m.Watch(h)
	s := start(t, web.Admin(h, &web.AdminOptions{Metrics: m}))
	proceed, done := make(chan struct{}), make(chan struct{})
	started := make(chan struct{})
	id := testObjects.Get(h, "a").ID()
	go func() {
		defer close(done)
		_ = testObjects.Get(h, "a").Do(t.Context(), func(context.Context, *testObject) error {
			close(started)
			<-proceed // ignores its context
			return nil
		})
	}()
	<-started
	h.Evict(id, dohost.EndFence)
	scrape := func() string {
		b, err := io.ReadAll(s.do("GET", "/metrics", "").Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if text := scrape(); !strings.Contains(text, "dohost_zombies 1") {
		t.Errorf("no zombie in\n%s", text)
	}
	close(proceed)
	<-done
	for !strings.Contains(scrape(), "dohost_zombies 0") { // it unwinds by itself
	}
	if text := scrape(); !strings.Contains(text, `dohost_incarnations_ended_total{cause="evicted",class="thing",place=""} 1`) {
		t.Errorf("no eviction in\n%s", text)
	}
}

func TestLogReportsPanicWithItsStack(t *testing.T) {
	var buf bytes.Buffer
	h := open(t, &dohost.Options{Listener: web.LogListener(slog.New(slog.NewTextHandler(&buf, nil)))})
	call(t, h, "thing/a", "put", `"x"`)
	if _, err := h.Invoke(t.Context(), testObjects.Get(h, "a").ID(), "panic", nil); err == nil {
		t.Fatal("no panic")
	}
	h.Close()
	out := buf.String()
	if strings.Count(out, "\n") != 1 || !strings.Contains(out, "level=WARN msg=fenced object=thing/a") ||
		!strings.Contains(out, "panic: bug") || !strings.Contains(out, "(*testObject).Panic") {
		t.Fatalf("logged\n%s", out)
	}
}

// TestLogReportsANilPanicError ends an incarnation with a nil pointer as the reason.
func TestLogReportsANilPanicError(t *testing.T) {
	var buf bytes.Buffer
	l := web.LogListener(slog.New(slog.NewTextHandler(&buf, nil)))
	l.Fenced(dohost.Ended{Cause: &dohost.Fenced{Err: (*dohost.PanicError)(nil)}})
	if out := buf.String(); !strings.Contains(out, "nil *PanicError") || strings.Contains(out, "stack=") {
		t.Errorf("logged\n%s", out)
	}
}

func TestLogReportsFullDisk(t *testing.T) {
	var buf bytes.Buffer
	l := web.LogListener(slog.New(slog.NewTextHandler(&buf, nil)))
	l.Space(dohost.DiskSpace{Dir: "data", Full: true, Free: 999, Reserve: 1000})
	l.Space(dohost.DiskSpace{Dir: "data", Free: 1000, Reserve: 1000})
	first, second, _ := strings.Cut(buf.String(), "\n")
	if !strings.Contains(first, "writes are refused") || !strings.Contains(first, "folder=data free=999 reserve=1000") ||
		!strings.Contains(second, "writes are accepted again") || !strings.Contains(second, "free=1000") {
		t.Errorf("logged\n%s", buf.String())
	}
}

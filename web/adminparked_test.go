package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
	"github.com/dohost/dohost/web"
)

// TestAlarmsParkedAreListedAndRevived lets the alarms of three objects fail until they are
// parked, and revives one of them.
func TestAlarmsParkedAreListedAndRevived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := true
		class := dohost.Bind(testObjects, func(_ context.Context, st *dohost.State) (*testObject, error) { return &testObject{st}, nil },
			&dohost.Handlers[testObject]{
				OnAlarm: func(*testObject, context.Context, dohost.AlarmInfo) error {
					if bad {
						return errors.New("no")
					}
					return nil
				},
			})
		var out bytes.Buffer
		metrics := web.NewMetrics()
		h, err := dohost.Open(t.TempDir(), &dohost.Options{
			Listener: dohost.Tee(metrics.Listener(), web.LogListener(slog.New(slog.NewTextHandler(&out, nil)))),
		}, class)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		admin := web.Admin(h, &web.AdminOptions{Metrics: metrics})
		ask := func(method, path string) (int, string) {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, nil)
			admin.ServeHTTP(w, r)
			return w.Code, w.Body.String()
		}
		list := func(query string) (l adminapi.ParkedList) {
			t.Helper()
			status, body := ask("GET", "/v1/parked"+query)
			if err := json.Unmarshal([]byte(body), &l); err != nil || status != http.StatusOK || l.Parked == nil {
				t.Fatalf("%d %s, %v", status, body, err)
			}
			return l
		}
		for _, name := range []string{"a", "b", "c/d"} {
			if err := h.SetAlarm(t.Context(), testObjects.Get(h, name).ID(), time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		if l := list(""); len(l.Parked) != 0 {
			t.Errorf("before they have failed: %+v", l)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if l := list("?limit=2"); len(l.Parked) != 2 || l.Next != "thing/b" {
			t.Errorf("the first page: %+v", l)
		}
		l := list("?class=thing&after=thing/b")
		if len(l.Parked) != 1 || l.Next != "" {
			t.Fatalf("the second page: %+v", l)
		}
		p := l.Parked[0]
		if want := (adminapi.Parked{Object: "thing/c/d", Scheduled: p.Scheduled, Reason: "handler failed", Attempts: 7, Err: "no"}); p != want {
			t.Errorf("parked %+v, want %+v", p, want)
		}
		var shown adminapi.Object
		if _, body := ask("GET", "/v1/objects/thing/c%2Fd"); json.Unmarshal([]byte(body), &shown) != nil ||
			shown.Alarm != nil || shown.Parked == nil || *shown.Parked != p {
			t.Errorf("shown: %s", body)
		}
		if status, body := ask("GET", "/v1/objects/thing/c%2Fd/alarm"); strings.TrimSpace(body) != `{"at":null}` {
			t.Errorf("its alarm: %d %s", status, body)
		}
		if n := strings.Count(out.String(), "alarm parked"); n != 3 || !strings.Contains(out.String(), `reason="handler failed"`) {
			t.Errorf("%d lines in the log: %s", n, out.String())
		}
		if _, body := ask("GET", "/metrics"); !strings.Contains(body, `dohost_parked_alarms_total{class="thing",reason="handler failed"} 3`) {
			t.Errorf("metrics: %s", body)
		}

		bad = false
		for _, want := range []string{"true", "false"} {
			if status, body := ask("POST", "/v1/objects/thing/c%2Fd/alarm/revive"); strings.TrimSpace(body) != `{"revived":`+want+`}` {
				t.Errorf("reviving: %d %s, want %s", status, body, want)
			}
			synctest.Wait()
		}
		if l := list(""); len(l.Parked) != 2 {
			t.Errorf("after reviving one: %+v", l)
		}
		if status, body := ask("GET", "/v1/parked?class=none"); status != http.StatusNotFound {
			t.Errorf("an unknown class: %d %s", status, body)
		}
	})
}

// TestAlarmLagIsNotNegative opens a host on a store with an alarm that is delivered when the
// host starts, an hour before it is due.
func TestAlarmLagIsNotNegative(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class := dohost.Bind(testObjects, func(_ context.Context, st *dohost.State) (*testObject, error) { return &testObject{st}, nil },
			&dohost.Handlers[testObject]{OnAlarm: (*testObject).Alarm}, dohost.Expose("arm", dohost.Bare(func(o *testObject, ctx context.Context) error {
				return o.st.SetStartAlarm(ctx, time.Now().Add(time.Hour))
			})))
		dir := t.TempDir()
		h, err := dohost.Open(dir, nil, class)
		if err != nil {
			t.Fatal(err)
		}
		call(t, h, "thing/a", "arm", `{}`)
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		metrics := web.NewMetrics()
		h, err = dohost.Open(dir, &dohost.Options{Listener: metrics.Listener()}, class)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		time.Sleep(time.Second)
		w := httptest.NewRecorder()
		metrics.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
		if s := w.Body.String(); !strings.Contains(s, `dohost_alarm_lag_seconds_count{class="thing"} 1`) ||
			strings.Contains(s, `dohost_alarm_lag_seconds_sum{class="thing"} -`) {
			t.Errorf("metrics: %s", s)
		}
	})
}

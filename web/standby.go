package web

import (
	"context"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
)

// inspected is a host or a standby: both can be inspected.
type inspected interface {
	Classes() []dohost.Class
	StoredClasses(ctx context.Context) ([]string, error)
	Objects(ctx context.Context, class, after string) iter.Seq2[dohost.ID, error]
	Inspect(ctx context.Context, id dohost.ID) (dohost.Info, error)
	IsLive(id dohost.ID) bool
	FindDetails(ctx context.Context, id dohost.ID, q *dohost.DetailQuery) iter.Seq2[dohost.Resource, error]
	Export(ctx context.Context, id dohost.ID, w io.Writer) error
}

// StandbyAdmin serves the tools of an operator of a standby:
//
//	GET  /healthz, /readyz, /metrics            /readyz is 503 while the standby waits
//	GET  /v1/standby                            its last record, and its lag
//	POST /v1/promote                            make it a store; as_is=true: without reading the archive
//	GET  /v1/objects, /v1/objects/{class}/{name}, .../details, .../alarm, .../export    as [Admin]
//
// It has the checks of Admin. Of the options it uses Hosts, Tokens and Logger.
func StandbyAdmin(y *dohost.Standby, o *AdminOptions) http.Handler {
	a := &admin{reads: y}
	if o != nil {
		a.opts = *o
	}
	if a.opts.Logger == nil {
		a.opts.Logger = slog.New(slog.DiscardHandler)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(standbyCollector{y}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := y.Status().Waiting; why != "" {
			refuse(w, http.StatusServiceUnavailable, "not_ready", "the standby waits: "+why)
			return
		}
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /v1/standby", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, standbyOf(y.Status()))
	})
	mux.HandleFunc("POST /v1/promote", func(w http.ResponseWriter, r *http.Request) { promote(w, r, y) })
	mux.HandleFunc("GET /v1/objects", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("live") == "true" {
			writeJSON(w, http.StatusOK, adminapi.ObjectList{Objects: []adminapi.Object{}})
			return
		}
		a.list(w, r)
	})
	operators := authorize(a.opts.Tokens, nil, a.audited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/objects/") { // bypasses the mux, which would clean the names in the path
			a.object(w, r)
			return
		}
		if _, pattern := mux.Handler(r); pattern == "" {
			a.noRoute(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})))
	return BoundBodies(nil, a.guard(operators))
}

// noRoute answers a request that the listener does not serve.
func (a *admin) noRoute(w http.ResponseWriter, r *http.Request) {
	if a.host == nil {
		refuse(w, http.StatusNotFound, "standby", "a standby has no route for "+r.Method+" "+r.URL.Path+": it runs no object")
		return
	}
	noRoute(w, r)
}

// promote answers POST /v1/promote.
func promote(w http.ResponseWriter, r *http.Request, y *dohost.Standby) {
	try := y.Promote
	if r.URL.Query().Get("as_is") == "true" {
		try = y.PromoteAsIs
	}
	st, err := try(r.Context())
	if err != nil {
		code := "not_promoted"
		if b, _ := dohost.DescribeError(err); b.Code == "standby_lags" {
			code = b.Code
		}
		refuse(w, http.StatusConflict, code, err.Error())
		return
	}
	writeJSON(w, http.StatusOK, standbyOf(st))
}

func standbyOf(st dohost.StandbyStatus) adminapi.Standby {
	s := adminapi.Standby{
		Record: st.Record, Archived: st.Archived, Lag: st.Lag, LagSeconds: st.LagTime.Seconds(), Waiting: st.Waiting, Promoted: st.Promoted,
	}
	if st.Record > 0 {
		s.Store, s.Made = st.Identity.String(), &st.Time
	}
	return s
}

// standbyCollector reads a standby at each scrape.
type standbyCollector struct{ y *dohost.Standby }

var (
	descStandbyRecord   = prometheus.NewDesc("dohost_standby_record", "Number of the last applied record.", nil, nil)
	descStandbyArchived = prometheus.NewDesc("dohost_standby_archived_record", "Number of the newest record in the archive.", nil, nil)
	descStandbyMade     = prometheus.NewDesc("dohost_standby_record_timestamp_seconds", "When the last applied record was made; 0 if there is none.", nil, nil)
	descStandbyLag      = prometheus.NewDesc("dohost_standby_lag_records", "Records in the archive that are not applied.", nil, nil)
	descStandbySeconds  = prometheus.NewDesc("dohost_standby_lag_seconds", "Time since the standby found the oldest record that is not applied; 0 if there is none.", nil, nil)
	descStandbyWaiting  = prometheus.NewDesc("dohost_standby_waiting", "1 if the standby cannot continue before the archive or the disk changes, otherwise 0.", nil, nil)
)

// Describe yields the names of Collect's metrics.
func (standbyCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descStandbyRecord, descStandbyArchived, descStandbyMade, descStandbyLag, descStandbySeconds, descStandbyWaiting} {
		ch <- d
	}
}

// Collect reads the standby.
func (c standbyCollector) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	st := c.y.Status()
	made, waiting := 0.0, 0.0
	if st.Record > 0 {
		made = float64(st.Time.UnixNano()) / 1e9
	}
	if st.Waiting != "" {
		waiting = 1
	}
	send(descStandbyRecord, float64(st.Record))
	send(descStandbyArchived, float64(st.Archived))
	send(descStandbyMade, made)
	send(descStandbyLag, float64(st.Lag))
	send(descStandbySeconds, st.LagTime.Seconds())
	send(descStandbyWaiting, waiting)
}

package web

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dohost/dohost"
)

// Metrics counts the events of a host, for Prometheus: make one with [NewMetrics], give its Listener to the host, and
// the host to Watch. A nil *Metrics and a zero Metrics cannot be used, except that nil in Options and AdminOptions means none. Labels have
// few values: classes, causes and places, never names of objects. Any number of goroutines may call the methods.
type Metrics struct {
	registry *prometheus.Registry
	host     atomic.Pointer[dohost.Host]

	wakes, ended, events, refused, turns, staleAlarms, parkedAlarms, failures, responses, service, outcomes, modelTokens, modelCost *prometheus.CounterVec

	eventSeconds, alarmLag, serviceLag, queueDepth *prometheus.HistogramVec
	storeFailed                                    prometheus.Gauge
}

// NewMetrics makes a registry of its own, with the metrics of the process in addition to the host's.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"class"})
	}
	m := &Metrics{
		registry:     prometheus.NewRegistry(),
		wakes:        counter("dohost_wakes_total", "Incarnations started.", "class"),
		ended:        counter("dohost_incarnations_ended_total", "Incarnations ended, by cause, and by place if the cause was chaos.", "class", "cause", "place"),
		events:       counter("dohost_events_total", "Finished events, by result: ok, error or no_space.", "class", "result"),
		refused:      counter("dohost_refused_writes_total", "Refused commits of ended incarnations.", "class"),
		turns:        counter("dohost_long_turns_total", "Turns held for more than a second.", "class"),
		staleAlarms:  counter("dohost_stale_alarms_total", "Alarm deliveries superseded by a newer alarm.", "class"),
		parkedAlarms: counter("dohost_parked_alarms_total", "Alarms that were parked: the host no longer delivers them.", "class", "reason"),
		failures:     counter("dohost_background_failures_total", "Failures of the host's background work."),
		responses:    counter("dohost_http_responses_total", "Responses of the listener for clients, by route and status.", "route", "status"),
		service:      counter("dohost_service_events_total", "Reports of services, such as agents about their fibers, schedules and queues.", "class", "event", "outcome"),
		outcomes:     counter("dohost_operation_outcomes_total", "Outcomes of operations that became unknown, and decisions about them: unknown, done or not-done.", "class", "policy", "outcome"),
		modelTokens:  counter("dohost_model_tokens_total", "Tokens of the ended calls of models, by direction: input or output.", "class", "direction"),
		modelCost:    counter("dohost_model_cost_total", "Cost of the ended calls of models, in units of the currency of the program.", "class"),
		serviceLag:   histogram("dohost_schedule_lag_seconds", "Time from when a schedule or queue item was due to the start of its run.", prometheus.ExponentialBuckets(0.001, 4, 10)),
		queueDepth:   histogram("dohost_queue_depth", "Items left in an agent's queue after a run of an item.", prometheus.ExponentialBuckets(1, 4, 8)),
		eventSeconds: histogram("dohost_event_seconds", "Time from the start of an event to its end, Awaits included.", prometheus.ExponentialBuckets(0.0001, 4, 10)),
		alarmLag:     histogram("dohost_alarm_lag_seconds", "Time from when an alarm was due to the start of its handler.", prometheus.ExponentialBuckets(0.001, 4, 10)),
		storeFailed:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "dohost_store_failed", Help: "1 if the store has failed, otherwise 0."}),
	}
	m.registry.MustRegister(
		m.wakes, m.ended, m.events, m.refused, m.turns, m.staleAlarms, m.parkedAlarms, m.failures, m.responses,
		m.service, m.outcomes, m.modelTokens, m.modelCost, m.serviceLag, m.queueDepth, m.eventSeconds, m.alarmLag, m.storeFailed, hostCollector{m},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.failures.WithLabelValues() // so that zero differs from a missing counter
	return m
}

// Listener returns a Listener that counts the events of a host.
func (m *Metrics) Listener() dohost.Listener {
	return dohost.Listener{
		Waking: func(id dohost.ID, _ dohost.Epoch) { m.wakes.WithLabelValues(id.Class).Inc() },
		Fenced: func(e dohost.Ended) {
			m.ended.WithLabelValues(e.ID.Class, string(e.Cause.Reason), e.Cause.Place).Inc()
		},
		EventEnded: func(e dohost.EndedEvent) {
			result := "ok"
			switch {
			case errors.Is(e.Err, dohost.ErrNoSpace):
				result = "no_space"
			case e.Err != nil:
				result = "error"
			}
			m.events.WithLabelValues(e.ID.Class, result).Inc()
			m.eventSeconds.WithLabelValues(e.ID.Class).Observe(e.Took.Seconds())
		},
		Refused:     func(id dohost.ID, _ dohost.Epoch) { m.refused.WithLabelValues(id.Class).Inc() },
		AlarmEnded:  func(a dohost.AlarmRun) { m.alarmLag.WithLabelValues(a.ID.Class).Observe(a.Late.Seconds()) },
		AlarmParked: func(p dohost.ParkedAlarm) { m.parkedAlarms.WithLabelValues(p.ID.Class, p.Reason.String()).Inc() },
		AlarmStale:  func(id dohost.ID) { m.staleAlarms.WithLabelValues(id.Class).Inc() },
		TurnHeld:    func(t dohost.LongTurn) { m.turns.WithLabelValues(t.ID.Class).Inc() },
		StoreFailed: func(error) { m.storeFailed.Set(1) },
		Service:     m.reported,
		Failed:      func(error) { m.failures.WithLabelValues().Inc() },
	}
}

// reported counts the reports of a service, by outcome or status if a report contains one. Only those of package chat about calls of
// models count tokens and cost, and only those of package ledger outcomes by policy: attributes of other services may have the same names.
func (m *Metrics) reported(id dohost.ID, event string, attrs ...slog.Attr) {
	outcome, policy := "", ""
	for _, a := range attrs {
		switch a.Key {
		case "outcome", "status":
			outcome = a.Value.String()
		case "policy":
			policy = a.Value.String()
		case "lag":
			m.serviceLag.WithLabelValues(id.Class).Observe(a.Value.Duration().Seconds())
		case "waiting":
			if event == "queue:run" {
				m.queueDepth.WithLabelValues(id.Class).Observe(float64(a.Value.Int64()))
			}
		}
	}
	m.service.WithLabelValues(id.Class, event, outcome).Inc()
	switch event {
	case "ledger:unknown":
		m.outcomes.WithLabelValues(id.Class, policy, "unknown").Inc()
	case "ledger:resolved":
		m.outcomes.WithLabelValues(id.Class, policy, outcome).Inc()
	case "chat:model":
		m.modelCalled(id, attrs)
	}
}

// modelCalled counts the tokens and the cost of a call of a model.
func (m *Metrics) modelCalled(id dohost.ID, attrs []slog.Attr) {
	for _, a := range attrs {
		switch a.Key {
		case "input_tokens":
			m.modelTokens.WithLabelValues(id.Class, "input").Add(positive(a.Value))
		case "output_tokens":
			m.modelTokens.WithLabelValues(id.Class, "output").Add(positive(a.Value))
		case "cost":
			m.modelCost.WithLabelValues(id.Class).Add(positive(a.Value) / 1e6)
		}
	}
}

// positive returns a number that a counter accepts: one that is not negative, and 0 for any other value.
func positive(v slog.Value) float64 {
	if v.Kind() != slog.KindInt64 {
		return 0
	}
	return float64(max(0, v.Int64()))
}

// Watch makes each scrape read values from the host: objects in memory, zombies, the store. It replaces the host of an earlier call.
func (m *Metrics) Watch(h *dohost.Host) { m.host.Store(h) }

// ServeHTTP answers a scrape.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// response counts a response of the public listener.
func (m *Metrics) response(route string, status int, aborted bool) {
	if m == nil {
		return
	}
	label := strconv.Itoa(status)
	if aborted {
		label = "aborted"
	}
	m.responses.WithLabelValues(route, label).Inc()
}

// hostCollector reads the host at each scrape.
type hostCollector struct{ m *Metrics }

var (
	descLive         = prometheus.NewDesc("dohost_live_objects", "Objects with an incarnation in memory.", nil, nil)
	descSockets      = prometheus.NewDesc("dohost_sockets", "WebSockets by state: live (the object is in memory) or hibernating.", []string{"state"}, nil)
	descZombies      = prometheus.NewDesc("dohost_zombies", "Events that are still running in ended incarnations.", nil, nil)
	descRecords      = prometheus.NewDesc("dohost_store_records_total", "Records made durable.", nil, nil)
	descBatches      = prometheus.NewDesc("dohost_store_batches_total", "Batches with writes in the durable records.", nil, nil)
	descBytes        = prometheus.NewDesc("dohost_store_bytes_total", "Bytes of the durable records.", nil, nil)
	descDamaged      = prometheus.NewDesc("dohost_store_damaged_blocks", "Blocks and records of the store that could not be read.", nil, nil)
	descReads        = prometheus.NewDesc("dohost_read_budget_bytes", "Bytes of request bodies and frames that the host is reading or handling.", nil, nil)
	descReadsFull    = prometheus.NewDesc("dohost_read_budget_refused_total", "Requests and frames that were refused because the read budget was exhausted.", nil, nil)
	descSends        = prometheus.NewDesc("dohost_send_queue_bytes", "Bytes of frames and responses that wait for clients.", nil, nil)
	descSlow         = prometheus.NewDesc("dohost_slow_sockets_total", "WebSockets closed, and HTTP responses cut, because their clients did not read.", nil, nil)
	descShipRecords  = prometheus.NewDesc("dohost_ship_lag_records", "Durable records that are not in the archive.", nil, nil)
	descShipBytes    = prometheus.NewDesc("dohost_ship_lag_bytes", "Bytes in the store that wait to be shipped to the archive.", nil, nil)
	descShipSeconds  = prometheus.NewDesc("dohost_ship_lag_seconds", "Time since the oldest record that is not in the archive became durable; 0 if there is none.", nil, nil)
	descShipUploaded = prometheus.NewDesc("dohost_ship_bytes_total", "Bytes put into the archive.", nil, nil)
	descShipFailures = prometheus.NewDesc("dohost_ship_failures_total", "Failed attempts to ship records.", nil, nil)
	descShipBase     = prometheus.NewDesc("dohost_ship_needs_base", "1 if the newest shipped records cannot be restored before a base is complete, otherwise 0.", nil, nil)
	descLogBytes     = prometheus.NewDesc("dohost_shared_log_bytes", "Bytes of the records in the shared log since its newest base.", nil, nil)
	descLogBases     = prometheus.NewDesc("dohost_shared_log_bases_total", "Bases that the host has written to the shared log.", nil, nil)
	descLogFailures  = prometheus.NewDesc("dohost_shared_log_failures_total", "Failed attempts to write a base to the shared log, or to purge the records before it.", nil, nil)
	descUndurable    = prometheus.NewDesc("dohost_store_undurable_bytes", "Bytes written and not durable yet, including writes of running events.", nil, nil)
)

// Describe yields the names of Collect's metrics.
func (hostCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descLive, descSockets, descZombies, descRecords, descBatches, descBytes, descDamaged, descUndurable, descReads, descReadsFull, descSends, descSlow,
		descShipRecords, descShipBytes, descShipSeconds, descShipUploaded, descShipFailures, descShipBase, descLogBytes, descLogBases, descLogFailures} {
		ch <- d
	}
}

// Collect reads the host.
func (c hostCollector) Collect(ch chan<- prometheus.Metric) {
	h := c.m.host.Load()
	if h == nil {
		return
	}
	send := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
	}
	st := h.Stats()
	send(descLive, prometheus.GaugeValue, float64(h.LiveCount()))
	live, hibernating := h.SocketCount()
	send(descSockets, prometheus.GaugeValue, float64(live), "live")
	send(descSockets, prometheus.GaugeValue, float64(hibernating), "hibernating")
	send(descZombies, prometheus.GaugeValue, float64(len(h.Zombies())))
	send(descRecords, prometheus.CounterValue, float64(st.Records))
	send(descBatches, prometheus.CounterValue, float64(st.Batches))
	send(descBytes, prometheus.CounterValue, float64(st.Bytes))
	send(descDamaged, prometheus.GaugeValue, float64(st.Damaged))
	send(descUndurable, prometheus.GaugeValue, float64(st.Undurable))
	reads, sends := h.ReadBudget(), h.SendBudget()
	send(descReads, prometheus.GaugeValue, float64(reads.Used))
	send(descReadsFull, prometheus.CounterValue, float64(reads.Refused))
	send(descSends, prometheus.GaugeValue, float64(sends.Used))
	send(descSlow, prometheus.CounterValue, float64(sends.Refused))
	if st.Shared.On {
		send(descLogBytes, prometheus.GaugeValue, float64(st.Shared.Bytes))
		send(descLogBases, prometheus.CounterValue, float64(st.Shared.Written))
		send(descLogFailures, prometheus.CounterValue, float64(st.Shared.Failures))
	}
	if !st.Ship.On {
		return
	}
	send(descShipRecords, prometheus.GaugeValue, float64(st.Ship.Records))
	send(descShipBytes, prometheus.GaugeValue, float64(st.Ship.Bytes))
	send(descShipSeconds, prometheus.GaugeValue, st.Ship.Lag.Seconds())
	send(descShipUploaded, prometheus.CounterValue, float64(st.Ship.Uploaded))
	send(descShipFailures, prometheus.CounterValue, float64(st.Ship.Failures))
	base := 0.0
	if st.Ship.NeedsBase {
		base = 1
	}
	send(descShipBase, prometheus.GaugeValue, base)
}

package cli

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/lifecycletest"
)

// adder is a number that survives restarts.
type adder struct{ store *dohost.Storage }

const adders dohost.Namespace[adder] = "adder"

func (a *adder) Add(ctx context.Context, delta int) (int, error) {
	if err := dohost.Add(ctx, a.store, "n", delta); err != nil {
		return 0, err
	}
	n, _, err := dohost.Get[int](ctx, a.store, "n")
	return n, err
}

func adderClass() dohost.Class {
	return dohost.Bind(adders, func(_ context.Context, st *dohost.State) (*adder, error) { return &adder{st.Storage()}, nil }, nil,
		dohost.Expose("add", (*adder).Add))
}

// restartedServer is dohost serve, started repeatedly on one store, with callers that call also while it is stopped.
type restartedServer struct {
	t      *testing.T
	cmd    serveCmd
	client http.Client

	mu      sync.Mutex     // guards signals and ended, and is held while it starts or stops
	signals chan os.Signal // nil while it is stopped
	ended   chan error

	countMu sync.Mutex // guards the rest; taken after mu
	at      string     // of the last server
	starts  int
	acked   int // increments
	tried   int
}

func (a *restartedServer) start() {
	a.serve()
	if n, ok := a.add(1); ok && n < 1 {
		a.t.Errorf("1 and something is %d", n)
	}
}

func (a *restartedServer) serve() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.signals != nil {
		return
	}
	s := &server{std: stdio{strings.NewReader(""), io.Discard, io.Discard}, classes: []string{adderClass().Name()}, log: slog.New(slog.DiscardHandler), served: make(chan error, 2)}
	if err := s.open(a.t.Context(), &a.cmd, []dohost.Class{adderClass()}); err != nil {
		a.t.Errorf("start: %v, %v", err, s.closeListeners())
		return
	}
	s.start()
	signals, ended := make(chan os.Signal, 2), make(chan error, 1)
	a.signals, a.ended = signals, ended
	go func() { ended <- s.wait(a.t.Context(), signals) }()
	a.countMu.Lock()
	defer a.countMu.Unlock()
	a.at = s.publicAt.Addr().String()
	a.starts++
}

func (a *restartedServer) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.signals == nil {
		return
	}
	a.signals <- syscall.SIGTERM
	if err := <-a.ended; err != nil {
		a.t.Errorf("stop: %v", err)
	}
	a.signals = nil
}

// add calls the last server, and returns whether it answered.
func (a *restartedServer) add(delta int) (total int, ok bool) {
	a.countMu.Lock()
	a.tried += delta
	url := "http://" + a.at + "/objects/adder/a/add"
	a.countMu.Unlock()
	body, err := json.Marshal(delta)
	if err != nil {
		a.t.Error(err)
	}
	res, err := a.client.Post(url, "application/json", strings.NewReader(string(body)))
	if err != nil {
		return 0, false
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || json.NewDecoder(res.Body).Decode(&total) != nil {
		return 0, false
	}
	a.countMu.Lock()
	defer a.countMu.Unlock()
	a.acked += delta
	return total, true
}

// TestServeStartsAndStopsUnderStress finds leaked goroutines, by the leak check in TestMain, a lock or a port that is
// not released, and answers that a stop contradicts. It is not parallel to tests that start processes: until such a process has replaced its
// image, it has a copy of the lock of the data directory, which the next start finds.
func TestServeStartsAndStopsUnderStress(t *testing.T) {
	a := &restartedServer{
		t: t, client: http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}},
		cmd: serveCmd{
			Data: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0", Admin: "127.0.0.1:0",
			TimeScale: 1, Grace: 30 * time.Second, Log: "off",
		},
	}
	lifecycletest.Stress(t, a.start, a.stop)
	a.serve()
	total, ok := a.add(1) // on a busy machine, only this increment may be acknowledged
	a.stop()
	if !ok || total < a.acked || total > a.tried {
		t.Errorf("the total is %d (answered: %v), of %d increments that were acknowledged and %d that were tried", total, ok, a.acked, a.tried)
	}
	t.Logf("%d starts, %d of %d increments acknowledged", a.starts, a.acked, a.tried)
}

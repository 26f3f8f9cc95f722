package dohosttest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
	"github.com/dohost/dohost/sharedlog/logtest"
)

// maxSteps is the number of steps after which a run is given up.
var maxSteps = 1 << 18

// scenarioRun is one run of a scenario, in one bubble. Fields without a note belong to the code
// at a standstill: the scheduler, or the test before the scheduler starts and after it has
// stopped.
type scenarioRun struct {
	// Fixed.
	classes  []dohost.Class
	options  dohost.Options
	services []*FakeService
	// hadEffect judges reports of unknown outcomes; may be nil.
	hadEffect func(id string) bool
	order     order
	targets   []interruption // the stack is recorded at points like these
	moved     *atomic.Int64

	t       *testing.T // of the bubble
	sched   *scheduler
	current currentProcess
	began   time.Time
	ctx     context.Context // ends when the run is given up
	cancel  context.CancelCauseFunc

	processes     int
	pastProcesses []*process
	shared        *logtest.Log // nil if the history is in the directories
	// formerOwner is the last process that was taken over. Any goroutine may read it.
	formerOwner atomic.Pointer[process]
	plan        []interruption
	endings     []interruption // made so far, with their sites
	panics      atomic.Int64
	// unknown counts reports of unknown outcomes, and falseUnknown those without an effect.
	unknown, falseUnknown atomic.Int64
	full                  *process // its disk is full until the next step; nil if none is
	drawEnding            func(Point) dohost.EndMode
	traces                map[dohost.ID]*objectTrace
	events                int // started so far
	incarnations          int
	clients               clients
	steps                 int
	failed                error
	disturbed             bool          // the test has ended something itself, or made the disk fail
	firstAt               time.Duration // time of the first ending

	checking atomic.Bool // nothing is interrupted any more, for the check
	over     atomic.Bool // the bubble has ended

	log eventLog
}

// objectTrace has the points of an object.
type objectTrace struct {
	points       []Point
	incarnations map[uint64]int         // number of the incarnation, by its epoch
	records      map[recordPlace]uint64 // points of records
}

// recordPlace is a place of the records of an event.
type recordPlace struct {
	incarnation int
	event       uint64
	place       dohost.Place
}

// interruption is the end of an incarnation, or of the process, at a point.
type interruption struct {
	Point  Point
	Ending dohost.EndMode
}

// runInBubble runs f in a scenarioRun of its own, in a bubble.
func (w *scenarioRun) runInBubble(t *testing.T, f func(ctx context.Context, h *Host) error) error {
	if w.moved == nil {
		w.moved = new(atomic.Int64)
	}
	var err error
	bad := bubble(t, w.moved, func(t *testing.T) {
		w.t = t
		err = w.runProcesses(t.Context(), f)
	})
	w.over.Store(true)
	if bad != nil && err == nil {
		err = bad
	}
	return err
}

// runProcesses runs the scenario, from its first process to its last.
func (w *scenarioRun) runProcesses(ctx context.Context, f func(ctx context.Context, h *Host) error) error {
	w.began = time.Now()
	w.log.began = w.began
	w.traces = map[dohost.ID]*objectTrace{}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	defer w.cancel(nil)
	w.sched = newScheduler(w.order)
	w.sched.visit, w.sched.name, w.sched.begin = w.visit, w.name, w.endFullDisk
	for _, s := range w.services {
		s.begin(&w.log)
	}
	go w.sched.run()
	defer w.sched.stop()
	p, err := w.start(objectstore.NewMemFS(), w.classes)
	if err != nil {
		return err
	}
	w.current.proc, w.current.up = p, closed
	h := newHost(w)
	err = h.Client(func(ctx context.Context) error { return f(ctx, h) }).Wait()
	closing := w.closeLast()
	if w.failed != nil {
		return w.failed
	}
	if err == nil {
		err = closing
	}
	if err == nil {
		err = w.checkStore()
	}
	return err
}

var closed = func() chan struct{} { ch := make(chan struct{}); close(ch); return ch }()

// fail gives the run up.
func (w *scenarioRun) fail(err error) {
	if w.failed == nil {
		w.failed = err
		w.cancel(err)
	}
}

// name returns a request's name: it identifies the step, independently of its time.
func (w *scenarioRun) name(g *stepRequest) string {
	at := g.point
	if g.do != nil {
		if at.Ctx != nil {
			return fmt.Sprintf("%09d asks", clientOf(at.Ctx))
		}
		return fmt.Sprintf("%09d asks", g.client)
	}
	if at.Place == eviction.PlaceSend || at.Place == eviction.PlaceAnswer {
		return fmt.Sprintf("%09d %v %d %d %d %v %s", clientOf(at.Ctx), at.From, at.Incarnation, at.Event, at.N, at.ID, at.Op)
	}
	return fmt.Sprintf("%v %d %d %v %s %d", at.ID, at.Incarnation, at.Event, at.Place, at.Op, at.N)
}

// visit is a step: it records the point, and returns how the incarnation ends there.
func (w *scenarioRun) visit(g *stepRequest) eviction.EndMode {
	w.moved.Add(1)
	at := g.point
	if g.proc.ended || g.proc.fenced {
		return eviction.EndNone
	}
	if w.steps++; w.steps > maxSteps && w.failed == nil {
		w.fail(fmt.Errorf("the run does not end: %d steps, the last of them at %s of %v", w.steps, at.Place, at.ID))
		w.end(false)
		return eviction.EndNone
	}
	if !at.Place.Ends() || at.Over {
		return eviction.EndNone
	}
	if at.Place == eviction.PlaceStart {
		w.events++
	}
	p := w.point(g)
	w.log.addPoint(p)
	ending := w.endingAt(g, p)
	switch ending {
	case eviction.EndFence, eviction.EndCrash:
		return ending
	case eviction.EndPowerCut, eviction.EndKill:
		w.end(ending == eviction.EndKill)
	case eviction.EndTakeOver:
		w.takeOver()
	case fullDisk:
		w.full = g.proc
		w.setFree(0)
	}
	return eviction.EndNone
}

// setFree sets the free space of the disk of the process in full.
func (w *scenarioRun) setFree(bytes uint64) {
	w.full.fs.SetFree(bytes)
	kernel.OfHost(w.full.host).RecheckSpace()
}

// endFullDisk is called before each step: the disk is no longer full.
func (w *scenarioRun) endFullDisk() {
	if w.full != nil {
		w.setFree(math.MaxInt64)
		w.full = nil
	}
}

// mayEndAt reports whether the point looks like a target.
func (w *scenarioRun) mayEndAt(at runtime.Point) bool {
	for _, s := range w.targets {
		if s.Point.Object == at.ID && s.Point.Place == at.Place {
			return true
		}
	}
	return false
}

// point adds a point to its object's trace, and returns the point.
func (w *scenarioRun) point(g *stepRequest) Point {
	at := g.point
	tr := w.traces[at.ID]
	if tr == nil {
		tr = &objectTrace{incarnations: map[uint64]int{}, records: map[recordPlace]uint64{}}
		w.traces[at.ID] = tr
	}
	if at.Incarnation != 0 && tr.incarnations[at.Incarnation] == 0 {
		tr.incarnations[at.Incarnation] = len(tr.incarnations) + 1
		w.incarnations++
	}
	p := Point{
		Object: at.ID, Index: len(tr.points) + 1, Incarnation: tr.incarnations[at.Incarnation], Event: at.Event, Op: at.Op,
		Place: at.Place, N: at.N,
	}
	if at.Op == "record" {
		at := recordPlace{p.Incarnation, p.Event, p.Place}
		tr.records[at]++
		p.N = tr.records[at]
	}
	tr.points = append(tr.points, p)
	return p
}

// endingAt returns the ending at a point, or None.
func (w *scenarioRun) endingAt(g *stepRequest, p Point) dohost.EndMode {
	ending := eviction.EndNone
	if n := len(w.endings); n < len(w.plan) && w.plan[n].Point.Object == p.Object && w.plan[n].Point.Index == p.Index {
		if was := w.plan[n].Point; was.name() != p.name() {
			w.fail(fmt.Errorf("%w: point %d of %v was %s, is %s", errNotDeterministic, p.Index, p.Object, was.name(), p.name()))
			return eviction.EndNone
		}
		ending = w.plan[n].Ending
	} else if w.drawEnding != nil {
		ending = w.drawEnding(p)
	}
	if ending != eviction.EndNone {
		if len(w.endings) == 0 {
			w.firstAt = time.Since(w.began)
		}
		p.Site = callSite(g.pcs)
		w.endings = append(w.endings, interruption{p, ending})
		w.log.addText(p.Object, "%s here", modeName(ending))
	}
	return ending
}

// countEndings counts the incarnations and the processes that were ended.
func (w *scenarioRun) countEndings() int {
	n := w.processes - 1
	for _, s := range w.endings {
		if s.Ending.EndsIncarnation() {
			n++
		}
	}
	return n
}

var errNotDeterministic = errors.New("the scenario is not deterministic")

// points lists the points of a run, object by object.
func (w *scenarioRun) points() (all []Point) {
	ids := slices.SortedFunc(maps.Keys(w.traces), compareIDs)
	for _, id := range ids {
		all = append(all, w.traces[id].points...)
	}
	return all
}

func compareIDs(a, b dohost.ID) int {
	switch as, bs := a.String(), b.String(); {
	case as < bs:
		return -1
	case as > bs:
		return 1
	}
	return 0
}

// checkStore checks the store after the run.
func (w *scenarioRun) checkStore() error {
	s, err := objectstore.Open(dir, &objectstore.Options{FS: w.current.proc.fs, ReadOnly: true})
	if err != nil {
		return fmt.Errorf("opening the store after the run: %w", err)
	}
	var problems []error
	note := func(p dohost.CheckProblem) { problems = append(problems, fmt.Errorf("store is inconsistent: %v", p)) }
	_, err = kernel.CheckStore(w.ctx, s, note, w.classes)
	return errors.Join(errors.Join(problems...), err, s.Close())
}

// eventLog is the log of a run.
type eventLog struct {
	began time.Time
	mu    sync.Mutex
	lines []line
}

type line struct {
	after time.Duration
	id    dohost.ID
	point *Point
	text  string
}

func (j *eventLog) addPoint(p Point) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line{after: time.Since(j.began), id: p.Object, point: &p})
}

func (j *eventLog) addText(id dohost.ID, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line{after: time.Since(j.began), id: id, text: fmt.Sprintf(format, args...)})
}

// String returns the whole log.
func (j *eventLog) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return textOf(j.lines)
}

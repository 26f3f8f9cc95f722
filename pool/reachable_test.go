package pool

import (
	"context"
	"encoding/json"
	"testing"
	"time"
)

// TestWorkIsReachableAllTheTime looks at a worker in each second of half an hour: while it waits, while it works, and while it waits again. An
// answer is lost every 45 s, and the server is down for 25 s in each two minutes. When the worker has ended it is not reachable any more.
func TestWorkIsReachableAllTheTime(t *testing.T) {
	withServer(t, nil, func(ctx context.Context, s *poolServer) {
		stop := s.worker(ctx, func(context.Context, *Task) (json.RawMessage, error) {
			<-time.After(10 * time.Minute)
			return json.RawMessage(`"done"`), nil
		})
		var id string
		least, looks := time.Hour, 0
		for second := range 30 * 60 {
			if second == 10*60 {
				id = s.post("a", "x")
			}
			if second%45 == 0 {
				s.lose.Store(1)
			}
			s.down.Store(second%120 >= 85 && second%120 < 110)
			s.sleep(time.Second)
			ws := call(s.fixture, (*Pool).Workers, ListQuery{Role: "a"}).Workers
			if len(ws) != 1 || !ws[0].Reachable || !s.role("a").Reachable {
				t.Fatalf("after %d s: %+v", second, ws)
			}
			least, looks = min(least, time.Until(ws[0].Until)), looks+1
		}
		if task := s.task(id); task.Status != StatusDone || task.Attempts != 1 || looks != 30*60 {
			t.Errorf("%+v after %d looks", task, looks)
		}
		if least < 4*time.Second { // a heartbeat that has failed is repeated soon
			t.Errorf("the worker was reachable for only another %v", least)
		}
		s.down.Store(false)
		if err := stop(); err != errStop || s.role("a").Reachable {
			t.Errorf("%v, %+v", err, s.role("a"))
		}
		s.left()
	})
}

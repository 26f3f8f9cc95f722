package agent

import (
	"context"
	"time"

	"github.com/dohost/dohost"
)

// AlarmLifecycle returns the lifecycle of an object's alarms: each run of its OnAlarm is a wake. The claim is the epoch of the incarnation; the end of
// the incarnation refuses all further requests, so no heartbeats are needed. Complete with pending work sets the alarm to the present time. After
// an error, OnAlarm should return it: the host delivers the alarm again.
func AlarmLifecycle(st *dohost.State) *Lifecycle[dohost.AlarmInfo] {
	return &Lifecycle[dohost.AlarmInfo]{
		Claim: func(context.Context, dohost.AlarmInfo) (WakeClaim, error) {
			epoch := st.Epoch()
			return WakeClaim{Wake: epoch.String(), Generation: epoch.Host}, nil
		},
		Complete: func(ctx context.Context, _ dohost.AlarmInfo, _ WakeClaim, work WorkState) error {
			if work == WorkDone {
				return nil
			}
			return st.SetAlarm(ctx, time.Now())
		},
	}
}

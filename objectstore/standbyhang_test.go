package objectstore

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// hangingArchive is an archive with reads that do not return, and ignore their contexts, while it hangs.
type hangingArchive struct {
	*memArchive

	mu      sync.Mutex // guards the rest
	hang    chan struct{}
	running int // reads
	most    int // reads that ran concurrently
}

func (a *hangingArchive) wait() {
	a.mu.Lock()
	hang := a.hang
	a.running++
	a.most = max(a.most, a.running)
	a.mu.Unlock()
	if hang != nil {
		<-hang
	}
	a.mu.Lock()
	a.running--
	a.mu.Unlock()
}

func (a *hangingArchive) List(ctx context.Context) ([]ArchiveObject, error) {
	a.wait()
	return a.memArchive.List(ctx)
}

func (a *hangingArchive) Get(ctx context.Context, name string) ([]byte, error) {
	a.wait()
	return a.memArchive.Get(ctx, name)
}

// mostReads returns the number of reads that ran concurrently, at most.
func (a *hangingArchive) mostReads() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.most
}

// setHang lets reads hang until release is called.
func (a *hangingArchive) setHang() (release func()) {
	hang := make(chan struct{})
	a.mu.Lock()
	a.hang = hang
	a.mu.Unlock()
	return func() {
		a.mu.Lock()
		a.hang = nil
		a.mu.Unlock()
		close(hang)
	}
}

const hangText = "listing the archive /shipped has not ended since 2000-01-01T0"

// TestStandbyEndsWhileAReadHangs has an archive that does not answer, and ends the standby in each way within a bounded time.
func TestStandbyEndsWhileAReadHangs(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, y *Standby, stop func(), ended chan error){
		"Follow": func(t *testing.T, _ *Standby, stop func(), ended chan error) {
			stop()
			if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), hangText) {
				t.Errorf("Follow: %v; want %q", err, hangText)
			}
		},
		"Close": func(t *testing.T, y *Standby, _ func(), ended chan error) {
			if err := y.Close(); err != nil {
				t.Error(err)
			}
			if err := <-ended; !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), hangText) {
				t.Errorf("Follow: %v; want %q", err, hangText)
			}
		},
		"PromoteAsIs": func(t *testing.T, y *Standby, _ func(), ended chan error) {
			if st, err := y.PromoteAsIs(t.Context()); err != nil || !st.Promoted || st.Waiting != "" {
				t.Errorf("promoted: %+v, %v", st, err)
			}
			if err := <-ended; err != nil {
				t.Errorf("Follow: %v", err)
			}
			if _, err := y.Promote(t.Context()); err != nil {
				t.Errorf("promoted again: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &hangingArchive{memArchive: archiveOf(t, 6)}
				y := standbyOf(t, NewMemFS(), a)
				y.from.name = "the archive /shipped"
				y.wantWaits(t, "")
				release := a.setHang()
				defer release()
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				ended := make(chan error, 1)
				go func() { ended <- y.Follow(ctx) }()
				time.Sleep(slowRead)
				if why := y.Status().Waiting; !strings.Contains(why, hangText) {
					t.Errorf("the standby waits because %q, want %q", why, hangText)
				}
				begun := time.Now()
				if _, err := y.Promote(t.Context()); !errors.Is(err, ErrStandbyLags) || !strings.Contains(err.Error(), hangText) {
					t.Errorf("promoted: %v; want %q", err, hangText)
				}
				end(t, y, stop, ended)
				if took := time.Since(begun); took > abandonTime {
					t.Errorf("it ended after %v", took)
				}
				if err := y.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestPromotionEndsWhileAReadHangs promotes before the standby knows that a read hangs: while Follow has the read, and with a read of its own,
// which PromoteAsIs interrupts.
func TestPromotionEndsWhileAReadHangs(t *testing.T) {
	for name, follows := range map[string]bool{"Follow": true, "Promote": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &hangingArchive{memArchive: archiveOf(t, 6)}
				y := standbyOf(t, NewMemFS(), a)
				y.from.name = "the archive /shipped"
				y.wantWaits(t, "")
				release := sync.OnceFunc(a.setHang())
				defer release()
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				ended := make(chan error, 2)
				if follows {
					go func() { ended <- y.Follow(ctx) }()
					synctest.Wait()
				}
				begun := time.Now()
				_, err := y.Promote(t.Context())
				if took := time.Since(begun); !errors.Is(err, ErrStandbyLags) || strings.Count(err.Error(), hangText) != 1 || took > slowRead+abandonTime {
					t.Errorf("promoted after %v: %v; want %q once", took, err, hangText)
				}
				stop()
				if follows {
					if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), hangText) {
						t.Errorf("Follow: %v; want %q", err, hangText)
					}
					return
				}
				release()
				synctest.Wait()
				defer a.setHang()()
				go func() { _, err := y.Promote(t.Context()); ended <- err }()
				synctest.Wait()
				begun = time.Now()
				if st, err := y.PromoteAsIs(t.Context()); err != nil || !st.Promoted || time.Since(begun) > abandonTime {
					t.Errorf("promoted as it is after %v: %+v, %v", time.Since(begun), st, err)
				}
				if err := <-ended; !errors.Is(err, ErrStandbyLags) {
					t.Errorf("Promote that was interrupted: %v", err)
				}
			})
		})
	}
}

// TestStandbyNamesAReadThatHangsBetweenItsLooks stops Follow in a pause, when it has left a read. The status has the read in addition to an
// earlier reason.
func TestStandbyNamesAReadThatHangsBetweenItsLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := archiveOf(t, 12)
		o, _ := newestObject(t, whole)
		a := &hangingArchive{memArchive: whole.clone()}
		y := standbyOf(t, NewMemFS(), a)
		y.from.name = "the archive /shipped"
		y.wantWaits(t, "")
		delete(a.objects, o.Name.String())
		y.wait("an earlier reason")
		release := a.setHang()
		defer release()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- y.Follow(ctx) }()
		time.Sleep(slowRead)
		if why := y.Status().Waiting; !strings.Contains(why, "an earlier reason; ") || !strings.Contains(why, hangText) {
			t.Errorf("the standby waits because %q", why)
		}
		time.Sleep(time.Hour + 30*time.Millisecond)
		if why := y.Status().Waiting; strings.Count(why, hangText) != 1 {
			t.Errorf("the standby waits because %q", why)
		}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), hangText) {
			t.Errorf("Follow: %v; want %q", err, hangText)
		}
	})
}

// TestStandbyLeavesOneHangingRead has an archive that does not answer for an hour, and then does.
func TestStandbyLeavesOneHangingRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := archiveOf(t, 12)
		states := history(t, whole)
		o, _ := newestObject(t, whole)
		a := &hangingArchive{memArchive: whole.clone()}
		delete(a.objects, o.Name.String())
		y := standbyOf(t, NewMemFS(), a)
		y.from.name = "the archive /shipped"
		y.wantWaits(t, "")
		release := a.setHang()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- y.Follow(ctx) }()
		time.Sleep(time.Hour)
		if why := y.Status().Waiting; !strings.Contains(why, hangText) {
			t.Errorf("the standby waits because %q, want %q", why, hangText)
		}
		expired, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, err := y.Promote(expired); !errors.Is(err, ErrStandbyLags) || !strings.Contains(err.Error(), hangText) {
			t.Errorf("promoted: %v; want %q", err, hangText)
		}
		cancel()
		if most := a.mostReads(); most != 1 {
			t.Errorf("%d reads hang", most)
		}
		a.set(func(a *memArchive) { a.objects = whole.objects })
		release()
		time.Sleep(5 * time.Second)
		if st := y.Status(); st.Waiting != "" || st.Lag != 0 {
			t.Errorf("the archive answers again: %+v", st)
		}
		y.wantState(t, "the end", states, o.Last)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestReadOfAFolderIsNamed wants the folder in the errors of a standby.
func TestReadOfAFolderIsNamed(t *testing.T) {
	_, err := newFollowedArchive(ReadDirArchive(NewMemFS(), "/shipped"), slog.New(slog.DiscardHandler)).Get(t.Context(), "x")
	if err == nil || !strings.Contains(err.Error(), "reading object x of the archive /shipped: ") {
		t.Error(err)
	}
}

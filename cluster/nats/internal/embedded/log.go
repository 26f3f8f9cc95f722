package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"
)

// serverLog writes the log of a server. Notices are for debugging.
type serverLog struct {
	log *slog.Logger

	mu    sync.Mutex // guards the rest; it is not held while the logger is called
	fatal error
	last  map[string]time.Time // of the texts of warnings, without digits
}

const (
	// quietTime is the time between two warnings that differ in numbers only: a server repeats each attempt to connect to another one.
	quietTime = time.Minute
	maxTexts  = 100
)

// plaintextWarning is about passwords that only this process knows, in its memory.
const plaintextWarning = "Plaintext passwords detected, use nkeys or bcrypt"

// failure returns the error that prevents the server from running, or nil.
func (l *serverLog) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

// Noticef implements [server.Logger].
func (l *serverLog) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }

// Debugf implements [server.Logger].
func (l *serverLog) Debugf(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }

// Tracef implements [server.Logger].
func (l *serverLog) Tracef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }

// Warnf implements [server.Logger].
func (l *serverLog) Warnf(format string, v ...any) { l.warn(fmt.Sprintf(format, v...)) }

// Errorf implements [server.Logger].
func (l *serverLog) Errorf(format string, v ...any) { l.warn(fmt.Sprintf(format, v...)) }

// Fatalf implements [server.Logger]. The server does not run after such an error; the process does.
func (l *serverLog) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.mu.Lock()
	l.fatal = errors.Join(l.fatal, errors.New(text))
	l.mu.Unlock()
	l.log.Error(text)
}

// warn logs a text, or nothing if it has logged a similar one recently.
func (l *serverLog) warn(text string) {
	similar := strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, text)
	l.mu.Lock()
	now := time.Now()
	if len(l.last) > maxTexts {
		clear(l.last)
	}
	last, found := l.last[similar]
	if found && now.Sub(last) < quietTime || text == plaintextWarning {
		l.mu.Unlock()
		return
	}
	l.last[similar] = now
	l.mu.Unlock()
	l.log.Warn(text)
}

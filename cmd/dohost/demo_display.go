package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// display shows the progress of the demo: as a bar on a terminal, else as plain lines.
type display struct {
	out      io.Writer
	terminal bool
	last     time.Time
}

const (
	barWidth  = 30
	lineEvery = time.Second
)

func newDisplay(out io.Writer) *display {
	d := &display{out: out}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		d.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return d
}

func (d *display) begin(p *demoPlan) {
	what := "the project's documents"
	if p.Dir != "" {
		what = p.Dir
	}
	if p.resumed {
		fmt.Fprintln(d.out, "Resuming an interrupted run, with the flags of its start.")
	}
	fmt.Fprintf(d.out, "Counting the words of %s: %d files, %s, in steps of about %d bytes.\nEvictions: %s; seed %d.\n", what, p.Files, bytesText(p.Bytes), p.Piece, p.evictions(), p.Seed)
}

// evictions describes the frequency of the evictions.
func (p *demoPlan) evictions() string {
	c, err := dohost.ParseChaos(p.Evict, "", "", 0)
	switch {
	case err != nil:
		return p.Evict // the worker reports the error
	case c.Mean > 0:
		return "every " + p.Evict + " on average, for each object"
	case c.Rate > 0 && p.At != "":
		return "with probability " + p.Evict + " at each of these places: " + p.At
	case c.Rate > 0:
		return "with probability " + p.Evict + " at each place"
	}
	return "none"
}

func (d *display) progress(share float64, p *demoPlan, now *account) {
	share = min(share, 1)
	if !d.terminal && time.Since(d.last) < lineEvery {
		return
	}
	d.last = time.Now()
	evictions := 0
	for _, counts := range []map[string]int{p.Account.Causes, now.Causes} {
		for _, n := range counts {
			evictions += n
		}
	}
	line := fmt.Sprintf("%3.0f %%  steps %d  evictions %d  kills %d", 100*share, p.Account.Steps+now.Steps, evictions, p.Killed)
	if d.terminal {
		full := int(share * barWidth)
		fmt.Fprintf(d.out, "\r[%s%s] %s ", strings.Repeat("#", full), strings.Repeat(" ", barWidth-full), line)
		return
	}
	fmt.Fprintln(d.out, line)
}

// note prints a message.
func (d *display) note(text string) {
	if d.terminal {
		fmt.Fprint(d.out, "\r\x1b[K")
	}
	fmt.Fprintln(d.out, text)
}

func (d *display) end() {
	if d.terminal {
		fmt.Fprintln(d.out)
	}
}

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
)

// Machine is the environment of the figures, apart from the program.
type Machine struct {
	Processor  string
	Cores      int
	GOMAXPROCS int
	System     string
	FileSystem string // of the data directory
	Go         string
	Cgo        bool
	Commit     string // with + if the tree had changes
	Date       string
	// Load is the load average of the last minute before the run: the processes that ran or waited for the disk. The figures of a machine
	// with other work are noisy. Zero if it is unknown.
	Load float64 `json:",omitempty"`
}

// thisMachine describes the machine of this process. Unknown fields are empty.
func thisMachine(dir, date string) Machine {
	m := Machine{
		Cores: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0), System: runtime.GOOS + "/" + runtime.GOARCH,
		Go: runtime.Version(), Date: date, Processor: processor(), FileSystem: fileSystem(dir), Commit: commit(), Load: load1(),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "CGO_ENABLED" {
				m.Cgo = s.Value == "1"
			}
		}
	}
	return m
}

func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func fileSystem(dir string) string {
	out, err := exec.Command("df", "--output=fstype", dir).Output()
	if err != nil {
		return ""
	}
	lines := strings.Fields(string(out))
	return lines[len(lines)-1]
}

func load1() (load float64) {
	text, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(text), &load)
	}
	if err != nil {
		return 0
	}
	return load
}

// loadText describes the load before a run.
func (m *Machine) loadText() string {
	if m.Load == 0 {
		return ""
	}
	return fmt.Sprintf(", load average %.1f before it", m.Load)
}

func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return ""
	}
	at := strings.TrimSpace(string(out))
	changes, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output()
	if err != nil || len(changes) > 0 {
		at += "+"
	}
	return at
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/examples/research"
)

// demoPlan is stored next to a run's store, so that the run can be resumed: its settings and its progress.
type demoPlan struct {
	Dir     string `json:"dir"`
	Seed    uint64 `json:"seed"`
	Piece   int    `json:"piece"`
	Evict   string `json:"evict"`
	At      string `json:"at"`
	Mode    string `json:"mode"`
	Kills   int    `json:"kills"`
	Bytes   int64  `json:"bytes"`
	Files   int    `json:"files"`
	Begun   bool   `json:"begun"`
	Killed  int    `json:"killed"`
	Account account

	resumed bool // read from the folder
}

// Names in the demo's folder.
const (
	planFile    = "demo.json"
	planTemp    = "demo.json.tmp"
	lockFile    = "demo.lock"
	storeFolder = "store"
)

// errRunning reports a folder that another process has locked.
var errRunning = errors.New("another demo is running in this folder")

// lockFolder makes the demo's folder, and locks it against another demo.
func (c *demoCmd) lockFolder() (io.Closer, error) {
	if c.Data == "" {
		return nil, errors.New("--data, or DOHOST_DEMO_DATA, is empty")
	}
	entries, err := os.ReadDir(c.Data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, flagError("--data", c.Data, err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	foreign := func(name string) bool { return name != planTemp && name != lockFile }
	if !slices.Contains(names, planFile) && slices.ContainsFunc(names, foreign) {
		return nil, fmt.Errorf("--data %s: the folder contains other files than those of a demo; choose another folder", c.Data)
	}
	if err := os.MkdirAll(c.Data, 0o755); err != nil {
		return nil, flagError("--data", c.Data, err)
	}
	lock, err := lockDemo(filepath.Join(c.Data, lockFile))
	if err != nil {
		return nil, flagError("--data", c.Data, err)
	}
	return lock, nil
}

// unlockFolder unlocks the folder, and removes it if it contains no run.
func (c *demoCmd) unlockFolder(lock io.Closer) error {
	err := lock.Close()
	if _, perr := os.Stat(filepath.Join(c.Data, planFile)); errors.Is(perr, fs.ErrNotExist) {
		err = errors.Join(err, os.Remove(filepath.Join(c.Data, lockFile)))
		_ = os.Remove(c.Data) // unless it is in use for something else
	}
	return err
}

// removeRun removes everything except the lock. It removes the plan first: a plan must not outlive its store.
func (c *demoCmd) removeRun() error {
	return errors.Join(os.Remove(filepath.Join(c.Data, planFile)), os.RemoveAll(filepath.Join(c.Data, storeFolder)))
}

// flagError describes an error about the path of a flag.
func flagError(flag, path string, err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err // without the name of the file and of the call
	}
	return fmt.Errorf("%s %s: %w", flag, path, err)
}

// plan reads the plan of an interrupted run, or makes a new one.
func (c *demoCmd) plan() (*demoPlan, error) {
	p, err := c.readPlan()
	if errors.Is(err, fs.ErrNotExist) {
		if p, err = c.newPlan(); err == nil {
			err = c.save(p)
		}
	}
	return p, err
}

func (c *demoCmd) readPlan() (*demoPlan, error) {
	name := filepath.Join(c.Data, planFile)
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	p := &demoPlan{resumed: true}
	if err = json.Unmarshal(data, p); err == nil && (p.Files < 1 || p.Piece < 1) {
		err = errors.New("the file contains no plan")
	}
	if err != nil {
		return nil, fmt.Errorf("%s is damaged, and its run cannot be resumed: %w\nchoose another folder with --data, or delete %s", name, err, c.Data)
	}
	return p, nil
}

// newPlan makes a plan from the flags.
func (c *demoCmd) newPlan() (*demoPlan, error) {
	p := &demoPlan{Seed: c.ChaosSeed, Evict: c.ChaosEvict, At: c.ChaosAt, Mode: c.ChaosMode, Kills: c.Kills}
	if c.Kills < 0 {
		return nil, fmt.Errorf("--kills %d: want 0 or more", c.Kills)
	}
	if _, err := dohost.ParseChaos(p.Evict, p.At, p.Mode, 0); err != nil {
		return nil, err
	}
	if c.Dir != "" {
		var err error
		if p.Dir, err = filepath.Abs(c.Dir); err != nil {
			return nil, err
		}
		if _, err := os.ReadDir(p.Dir); err != nil {
			return nil, flagError("--dir", c.Dir, err)
		}
	}
	if p.Seed == 0 {
		p.Seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	if err := p.measure(c.files(p)); err != nil {
		return nil, flagError("--dir", c.Dir, err)
	}
	return p, nil
}

// measure counts the files and their bytes.
func (p *demoPlan) measure(files fs.FS) error {
	paths, err := (&research.Config{Files: files}).Paths()
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return errors.New("there are no files to count")
	}
	p.Files = len(paths)
	for _, path := range paths {
		info, err := fs.Stat(files, path)
		if err != nil {
			return err
		}
		p.Bytes += info.Size()
	}
	p.Piece = int(min(max(p.Bytes/demoSteps, minPiece), maxPiece))
	if p.Evict == "" {
		p.Evict = strconv.FormatFloat(min(maxRate, rateOfByte/float64(p.Piece)), 'g', 3, 64)
	}
	return nil
}

// save writes the plan durably: a crash at any moment leaves the old one or the new one.
func (c *demoCmd) save(p *demoPlan) error {
	data, err := json.MarshalIndent(p, "", "\t")
	if err != nil {
		return err
	}
	temp := filepath.Join(c.Data, planTemp)
	f, err := os.Create(temp)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	if err := os.Rename(temp, filepath.Join(c.Data, planFile)); err != nil {
		return err
	}
	return syncFolder(c.Data)
}

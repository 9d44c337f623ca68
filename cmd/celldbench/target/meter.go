package target

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"celld/cmd/celldbench/load"
)

// Meter watches one stretch of load: CPU time and, where profiles are asked for, a
// CPU profile of each process, in files whose names begin with name.
func (t *Platform) Meter(name string, d time.Duration) load.Meter {
	return &meter{t: t, name: name, duration: d}
}

type meter struct {
	t        *Platform
	name     string
	duration time.Duration
	alone    bool // what the members do is of no interest
}

// MeterAlone is a Meter that profiles this process alone, for work that is not the
// platform's.
func (t *Platform) MeterAlone(name string) load.Meter { return &meter{t: t, name: name, alone: true} }

// Begin implements load.Meter.
func (m *meter) Begin() (end func() (load.Usage, error), err error) {
	endProfiles := func() error { return nil }
	if m.t.o.Profiles != "" {
		if endProfiles, err = m.profile(); err != nil {
			return nil, err
		}
	}
	endUsage, err := m.usage()
	if err != nil {
		return nil, errors.Join(err, endProfiles())
	}
	return func() (load.Usage, error) {
		used, err := endUsage()
		return used, errors.Join(err, endProfiles())
	}, nil
}

// usage is the CPU time from now to the end.
func (m *meter) usage() (end func() (load.Usage, error), err error) {
	before, err := m.t.usage()
	return func() (load.Usage, error) {
		after, err := m.t.usage()
		return load.Usage{Own: after.Own - before.Own, Machine: after.Machine - before.Machine}, err
	}, err
}

func (m *meter) path(process string) string {
	return filepath.Join(m.t.o.Profiles, m.name+process+".pprof")
}

// profile begins a profile of this process and of all members that are processes
// of their own. Those run for as long as the stretch is planned to, in whole
// seconds, and end waits for them.
func (m *meter) profile() (end func() error, err error) {
	f, err := os.Create(m.path(""))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	var wg sync.WaitGroup
	var profilers map[string]string
	if !m.alone {
		profilers = m.t.p.Profilers()
	}
	errs := make(chan error, len(profilers))
	for name, addr := range profilers {
		wg.Go(func() {
			if err := m.fetch(addr, m.path("-"+strings.ReplaceAll(name, "/", "."))); err != nil {
				errs <- fmt.Errorf("profile %s: %w", name, err)
			}
		})
	}
	return func() error {
		pprof.StopCPUProfile()
		err := f.Close()
		wg.Wait()
		close(errs)
		for e := range errs {
			err = errors.Join(err, e)
		}
		return err
	}, nil
}

// fetch has a member profile itself.
func (m *meter) fetch(addr, path string) (err error) {
	seconds := max(1, int(m.duration.Seconds()))
	c := http.Client{Timeout: m.duration + time.Minute}
	defer c.CloseIdleConnections()
	resp, err := c.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", addr, seconds))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return errors.New("it answers " + resp.Status)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, resp.Body)
	return errors.Join(err, f.Close())
}

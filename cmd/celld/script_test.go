package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"celld/cmd/celld/platform"
	"celld/cmd/celld/platform/port"
)

// patience bounds what a script waits for; it asks again every tick.
const (
	patience = 60 * time.Second
	tick     = 20 * time.Millisecond
)

// scriptCommands are the verbs that the scripts have beside testscript's own.
func scriptCommands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"exits":       exits,
		"ports":       ports,
		"ready":       ready,
		"alive":       alive,
		"up":          up,
		"get":         get,
		"kill-member": killMember,
		"all-gone":    allGone,
	}
}

// exits CODE PROGRAM ARGS... holds a program's exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		code = coded.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if want, err := strconv.Atoi(args[0]); err != nil || code != want {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// until asks again until fn returns nil.
func until(ts *testscript.TestScript, what string, fn func() error) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	deadline := time.Now().Add(patience)
	for {
		err := fn()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s: %v", what, err)
		}
		<-ticker.C
	}
}

func credentials(ts *testscript.TestScript, dir string) (platform.Credentials, error) {
	var c platform.Credentials
	b, err := os.ReadFile(platform.CredentialsPath(ts.MkAbs(dir)))
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(b, &c)
}

func status(url, token string) (int, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// ports NAME... holds a free address for each name until the script ends.
func ports(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: ports NAME...")
	}
	for _, name := range args {
		p, err := port.Reserve("127.0.0.1:0")
		ts.Check(err)
		ts.Defer(func() { ts.Check(p.Release()) })
		ts.Setenv(name, p.Addr())
	}
}

// ready ADDR waits until the gateway at an address is ready.
func ready(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: ready ADDR")
	}
	answers(ts, args[0], "/readyz")
}

// alive ADDR waits until the process at an address runs, ready or not.
func alive(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: alive ADDR")
	}
	answers(ts, args[0], "/healthz")
}

func answers(ts *testscript.TestScript, addr, path string) {
	until(ts, addr+path+" does not answer 200", func() error {
		code, err := status("http://"+addr+path, "")
		if err == nil && code != http.StatusOK {
			err = errors.New("it answers " + strconv.Itoa(code))
		}
		return err
	})
}

// up DIR waits until the platform on DIR is ready and sets GATEWAY, ADMIN and HTTP (host:port). A
// platform that was there before must be gone: its credentials are.
func up(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: up DIR")
	}
	var c platform.Credentials
	until(ts, "the platform is not up", func() error {
		var err error
		if c, err = credentials(ts, args[0]); err != nil {
			return err
		}
		for _, gateway := range c.Gateways {
			if code, err := status(gateway+"/readyz", ""); err != nil || code != http.StatusOK {
				return errors.Join(err, errors.New(gateway+" answers "+strconv.Itoa(code)))
			}
		}
		return nil
	})
	ts.Setenv("GATEWAY", c.Gateway)
	ts.Setenv("ADMIN", c.Admin)
	ts.Setenv("HTTP", strings.TrimPrefix(c.Gateway, "http://"))
}

// get STATUS DIR USER PATH holds what a user gets for a path.
func get(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: get STATUS DIR USER PATH")
	}
	c, err := credentials(ts, args[1])
	ts.Check(err)
	if c.Users[args[2]] == "" {
		ts.Fatalf("there is no token of %s", args[2])
	}
	code, err := status(c.Gateway+args[3], c.Users[args[2]])
	ts.Check(err)
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("%s gets %d for %s, want %s", args[2], code, args[3], args[0])
	}
}

func pids(ts *testscript.TestScript, dir string) (map[string]int, error) {
	all := map[string]int{}
	b, err := os.ReadFile(platform.PIDsPath(ts.MkAbs(dir)))
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(b, &all)
}

// kill-member DIR NAME kills a member and waits until another process is in its
// place.
func killMember(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: kill-member DIR NAME")
	}
	before, err := pids(ts, args[0])
	ts.Check(err)
	if before[args[1]] == 0 {
		ts.Fatalf("pids.json has no %s: %v", args[1], before)
	}
	ts.Check(syscall.Kill(before[args[1]], syscall.SIGKILL))
	until(ts, args[1]+" did not come back", func() error {
		now, err := pids(ts, args[0])
		if err != nil {
			return err
		}
		if pid := now[args[1]]; pid == 0 || pid == before[args[1]] {
			return errors.New("pids.json still says " + strconv.Itoa(pid))
		}
		return nil
	})
}

// all-gone FILE waits until none of the processes in a copy of pids.json runs.
func allGone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: all-gone FILE")
	}
	all := map[string]int{}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &all))
	if len(all) == 0 {
		ts.Fatalf("%s names no process", filepath.Base(args[0]))
	}
	for name, pid := range all {
		until(ts, name+" still runs", func() error {
			if err := syscall.Kill(pid, 0); err == nil {
				return errors.New("process " + strconv.Itoa(pid))
			}
			return nil
		})
	}
}

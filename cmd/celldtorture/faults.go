package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"celld/store/failpoint"
)

// breakage breaks something and says what it broke. What it broke heals by itself.
type breakage func(*torture, context.Context) (what string, err error)

// kinds are the faults by their name on the command line.
func kinds(o *options) map[string]breakage {
	all := map[string]breakage{
		"kill": (*torture).kill, "failpoint": (*torture).failpoint, "away": (*torture).away, "damage": (*torture).damage, "power": (*torture).power,
	}
	chosen := make(map[string]breakage)
	for _, name := range o.Faults {
		chosen[name] = all[name]
	}
	if o.Power {
		chosen["power"] = all["power"]
	}
	return chosen
}

func (t *torture) node() string { return nodeNames[t.rand.IntN(len(nodeNames))] }

// signal sends a signal to the present process of a member, which is waited for
// if there is none.
func (t *torture) signal(ctx context.Context, member string, s syscall.Signal) (pid int, err error) {
	err = until(ctx, healWithin, member+" runs", func(context.Context) (bool, error) {
		pid = t.w.p.Member(member).PID()
		return pid != 0, nil
	})
	if err != nil {
		return 0, err
	}
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return 0, fmt.Errorf("%s to %s: %w", s, member, err)
	}
	return pid, nil
}

// kill ends one node, the leader, all nodes, or the gateway.
func (t *torture) kill(ctx context.Context) (string, error) {
	var victims []string
	switch chance := t.rand.IntN(10); {
	case chance < 4:
		victims = []string{cell + "/" + t.node()}
	case chance < 7:
		m, err := t.w.members(ctx)
		if err != nil || m.leader() == "" {
			victims = []string{cell + "/" + t.node()}
			break
		}
		victims = []string{cell + "/" + m.leader()}
	case chance < 9:
		for _, node := range nodeNames {
			victims = append(victims, cell+"/"+node)
		}
	default:
		victims = []string{"G1"}
	}
	for _, member := range victims {
		if _, err := t.signal(ctx, member, syscall.SIGKILL); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("killed %v", victims), nil
}

// reachWithin is how long a failpoint may take to be reached. Some need a
// checkpoint, or a snapshot of Raft's, which come by themselves.
const reachWithin = 20 * time.Second

// arm asks for a death at a step, of one process if pid is not 0, and returns how
// to await it.
func (t *torture) arm(name failpoint.Name, pid int) (reached func(context.Context) bool, err error) {
	file := filepath.Join(t.w.points, string(name))
	if pid != 0 {
		file += "@" + strconv.Itoa(pid)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return nil, err
	}
	return func(ctx context.Context) bool {
		gone := func(context.Context) (bool, error) {
			_, err := os.Stat(file)
			return errors.Is(err, os.ErrNotExist), nil
		}
		if until(ctx, reachWithin, "", gone) == nil {
			t.reached[name]++
			return true
		}
		if errors.Is(os.Remove(file), os.ErrNotExist) { // at the last moment
			t.reached[name]++
			return true
		}
		return false
	}, nil
}

// failpoint has whichever node comes first die at a step that needs nothing
// special to be reached. The least reached steps come first.
func (t *torture) failpoint(ctx context.Context) (string, error) {
	name := t.rarest(everyday)
	reached, err := t.arm(name, 0)
	if err != nil {
		return "", err
	}
	if !reached(ctx) {
		return fmt.Sprintf("%s was not reached within %s", name, reachWithin), nil
	}
	return fmt.Sprintf("died at %s", name), nil
}

// rarest is one of the least reached of some steps.
func (t *torture) rarest(of []failpoint.Name) failpoint.Name {
	names := slices.Clone(of)
	t.rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return slices.MinFunc(names, func(a, b failpoint.Name) int { return t.reached[a] - t.reached[b] })
}

// away stops a node until the log that it needs is gone, and as often as not has
// it die at a step of catching up.
func (t *torture) away(ctx context.Context) (string, error) {
	node := t.node()
	pid, err := t.signal(ctx, cell+"/"+node, syscall.SIGSTOP)
	if err != nil {
		return "", err
	}
	awake := func() error { return syscall.Kill(pid, syscall.SIGCONT) }
	want := t.writers.acked.Load() + 10*logEntries // several writes share an entry
	err = until(ctx, healWithin, "the others write on", func(context.Context) (bool, error) {
		return t.writers.acked.Load() >= want, t.writers.broken()
	})
	if err != nil {
		return "", errors.Join(err, awake())
	}
	what := fmt.Sprintf("%s was away", node)
	if t.rand.IntN(2) == 0 {
		alone := t.measured()
		if err := awake(); err != nil {
			return "", err
		}
		if _, err := t.w.awaitWhole(ctx); err != nil {
			return "", err
		}
		return fmt.Sprintf("%s; writes without it: %s; while it caught up: %s", what, alone, t.measured()), nil
	}
	name := t.rarest(catchingUp)
	reached, err := t.arm(name, 0)
	if err := errors.Join(err, awake()); err != nil {
		return "", err
	}
	if reached(ctx) {
		return what + fmt.Sprintf(" and died at %s", name), nil
	}
	return what + fmt.Sprintf("; %s was not reached", name), nil
}

// measured is how long writes took since the last time.
func (t *torture) measured() latency {
	t.writers.pause()
	defer t.writers.resume()
	l := t.writers.reset()
	t.slowest = max(t.slowest, l.slowest)
	return l
}

// damage kills a node and writes over a page in the middle of a tenant's file
// before it is started again.
func (t *torture) damage(ctx context.Context) (string, error) {
	node := t.node()
	if _, err := t.signal(ctx, cell+"/"+node, syscall.SIGKILL); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(t.w.p.Dir(), "cells", cell, node, "tenants", "*", "*", "tenant.db"))
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return node + " had no file to damage", nil
	}
	file := files[t.rand.IntN(len(files))]
	f, err := os.OpenFile(file, os.O_WRONLY, 0) // its node is dead: no lock of SQLite's can be lost
	if err != nil {
		return "", err
	}
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(t.rand.IntN(256))
	}
	_, err = f.WriteAt(noise, 4096) // the second page: every statement needs it, or the schema does
	if err := errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	return fmt.Sprintf("a file of %s was damaged", node), nil
}

// power cuts the power of one node or of all.
func (t *torture) power(ctx context.Context) (string, error) {
	victims := []string{t.node()}
	if t.rand.IntN(2) == 0 {
		victims = nodeNames
	}
	for _, node := range victims {
		if err := t.w.disks.cut(node); err != nil {
			return "", err
		}
	}
	for _, node := range victims {
		if _, err := t.signal(ctx, cell+"/"+node, syscall.SIGKILL); err != nil {
			return "", err
		}
	}
	for _, node := range victims {
		if err := t.w.disks.restore(ctx, node); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("the power of %v failed", victims), nil
}

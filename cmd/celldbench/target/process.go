package target

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"celld/cmd/celldbench/load"
)

// usage counts as its own what this process and the members' own processes use.
func (t *Platform) usage() (load.Usage, error) {
	var u load.Usage
	var err error
	if u.Machine, err = machineCPU(); err != nil {
		return u, err
	}
	if u.Own, err = ownCPU(); err != nil {
		return u, err
	}
	for _, pid := range t.processes()[1:] {
		one, err := processCPU(pid)
		if err != nil {
			return u, err
		}
		u.Own += one
	}
	return u, nil
}

// CPUIncludes says what the CPU times are of.
func (t *Platform) CPUIncludes() string {
	if t.o.Isolate {
		return "user and system time of this process, which holds the load generator, and of all members' processes"
	}
	return "user and system time of this process, which holds the load generator and all members"
}

// Footprint is what the platform's processes hold, this one with them.
type Footprint struct {
	Resident  int64 // bytes of memory
	Anonymous int64 // of which no file's
	Heap      int64 // of which Go's objects, unless members are processes of their own
	Files     int   // descriptors
	MostFiles int   // of one process
}

// Footprint tells what is held now. Garbage counts.
func (t *Platform) Footprint() (Footprint, error) {
	var f Footprint
	for _, pid := range t.processes() {
		resident, anonymous, err := memory(pid)
		if err != nil {
			return f, err
		}
		files, err := descriptors(pid)
		if err != nil {
			return f, err
		}
		f.Resident += resident
		f.Anonymous += anonymous
		f.Files += files
		f.MostFiles = max(f.MostFiles, files)
	}
	if !t.o.Isolate {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		f.Heap = int64(m.HeapAlloc)
	}
	return f, nil
}

// AtRest collects this process's garbage and tells what is held.
func (t *Platform) AtRest() (Footprint, error) {
	debug.FreeOSMemory()
	return t.Footprint()
}

// most is the larger of each.
func (f Footprint) most(o Footprint) Footprint {
	return Footprint{Resident: max(f.Resident, o.Resident), Anonymous: max(f.Anonymous, o.Anonymous), Heap: max(f.Heap, o.Heap),
		Files: max(f.Files, o.Files), MostFiles: max(f.MostFiles, o.MostFiles)}
}

// WatchEvery is how often a Watch looks.
const WatchEvery = 200 * time.Millisecond

// Watch looks at what is held again and again until it is ended, and then tells
// the most of each.
func (t *Platform) Watch() (end func() (Footprint, error)) {
	stop, done := make(chan struct{}), make(chan struct{})
	var most Footprint
	var failed error
	go func() {
		defer close(done)
		ticker := time.NewTicker(WatchEvery)
		defer ticker.Stop()
		for over := false; !over; {
			select {
			case <-stop:
				over = true // and look once more
			case <-ticker.C:
			}
			now, err := t.Footprint()
			most, failed = most.most(now), errors.Join(failed, err)
		}
	}()
	return func() (Footprint, error) {
		close(stop)
		<-done
		return most, failed
	}
}

func memory(pid int) (resident, anonymous int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		var into *int64
		switch name {
		case "VmRSS":
			into = &resident
		case "RssAnon":
			into = &anonymous
		default:
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/%d/status: %w", pid, err)
		}
		*into = kib << 10
	}
	if resident == 0 {
		return 0, 0, fmt.Errorf("/proc/%d/status tells no resident memory", pid)
	}
	return resident, anonymous, nil
}

func descriptors(pid int) (n int, err error) {
	d, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for {
		names, err := d.Readdirnames(1024)
		n += len(names)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// LimitFiles lowers the number of descriptors that this process and its children
// may have. It cannot be raised again.
func LimitFiles(n uint64) error {
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
		return fmt.Errorf("lower the limit of open files to %d: %w", n, err)
	}
	return nil
}

// ownCPU is what this process has used so far, in user and in kernel mode.
func ownCPU() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, os.NewSyscallError("getrusage", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// machineCPU is what all processes of the machine have used so far. Time that a
// virtual machine did not get counts as used by others.
func machineCPU() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 9 {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var ticks int64
	for i, f := range fields[1:9] { // user nice system idle iowait irq softirq steal
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, err
		}
		if i != 3 && i != 4 {
			ticks += n
		}
	}
	return time.Duration(ticks) * tick, nil
}

// tick is the unit of the times in /proc/stat and /proc/PID/stat, on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// processCPU is what another process has used so far.
func processCPU(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in parentheses and may hold anything;
	// the times are the 14th and 15th.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

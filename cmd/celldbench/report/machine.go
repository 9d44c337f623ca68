package report

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

// Machine is where the run took place.
type Machine struct {
	Cores      int    `json:"cores"`
	CPU        string `json:"cpu"`
	OS         string `json:"os"`
	Filesystem string `json:"filesystem"`
	Go         string `json:"go"`
	Commit     string `json:"commit"`
	Load       string `json:"loadAverageBefore"` // over 1, 5 and 15 minutes
	At         string `json:"at"`
}

// NewMachine tells where this is; dir is where the data lies.
func NewMachine(dir string) Machine {
	m := Machine{
		Cores: runtime.NumCPU(), CPU: cpuModel(), OS: runtime.GOOS + "/" + runtime.GOARCH,
		Filesystem: filesystem(dir), Go: runtime.Version(), Commit: "unknown", Load: "unknown",
		At: time.Now().UTC().Format(time.RFC3339),
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		if f := strings.Fields(string(b)); len(f) > 3 {
			m.Load = strings.Join(f[:3], " ")
		}
	}
	if c := commit(); c != "" {
		m.Commit = c
	}
	return m
}

// commit is what the program was built from, as the build says or else the work
// tree in which it runs.
func commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		revision, changed := "", ""
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = "+changes"
			}
		}
		if revision != "" {
			return revision + changed
		}
	}
	out, err := exec.Command("git", "describe", "--always", "--abbrev=12", "--dirty=+changes", "--exclude=*").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for l := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// filesystem names what lies under dir: on a memory file system a sync costs
// nothing and the figures of writes say nothing.
func filesystem(dir string) string {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return "unknown"
	}
	switch uint32(s.Type) {
	case 0xef53:
		return "ext4"
	case 0x58465342:
		return "xfs"
	case 0x9123683e:
		return "btrfs"
	case 0x2fc12fc1:
		return "zfs"
	case 0x01021994:
		return "tmpfs (syncs cost nothing: figures of writes mean nothing)"
	case 0x794c7630:
		return "overlayfs"
	}
	return fmt.Sprintf("%#x", uint32(s.Type))
}

func (m Machine) String() string {
	return fmt.Sprintf("%d cores of %s, %s, %s, %s; commit %s; load average before %s; %s",
		m.Cores, m.CPU, m.OS, m.Filesystem, m.Go, m.Commit, m.Load, m.At)
}

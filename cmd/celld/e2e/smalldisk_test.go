package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// smallDisk is a file system of its own for one node's data, with a file in it that
// takes as much space as the test wants taken.
type smallDisk struct{ mount string }

// smallDiskBytes is more than twice the reserve that a platform of one machine keeps.
const smallDiskBytes = 160 << 20

// smallDisks mounts a small ext4 as the folder of each named node of a cell below
// dir, until the test ends. It needs root, mkfs.ext4 and a loop device, and says
// which of them is missing.
func smallDisks(t *testing.T, dir, cell string, nodes ...string) (map[string]smallDisk, error) {
	t.Helper()
	all := map[string]smallDisk{}
	for _, node := range nodes {
		image, d := filepath.Join(dir, "disk-"+node+".img"), smallDisk{filepath.Join(dir, "cells", cell, node)}
		err := errors.Join(os.MkdirAll(d.mount, 0o700), os.WriteFile(image, nil, 0o600), os.Truncate(image, smallDiskBytes))
		if err != nil {
			t.Fatal(err)
		}
		if err := run("mkfs.ext4", "-q", "-m", "0", image); err != nil {
			return nil, err
		}
		if err := run("mount", "-o", "loop", image, d.mount); err != nil {
			return nil, err
		}
		t.Cleanup(func() {
			eventually(t, "the file system of "+node+" is unmounted", func() bool { return run("umount", d.mount) == nil })
		})
		if err := errors.Join(os.Remove(filepath.Join(d.mount, "lost+found")), os.Chmod(d.mount, 0o700)); err != nil {
			t.Fatal(err)
		}
		all[node] = d
	}
	return all, nil
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return nil
}

func (d smallDisk) ballast() string { return filepath.Join(d.mount, "ballast") }

// free is how many bytes are free.
func (d smallDisk) free(t *testing.T) int64 {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(d.mount, &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Bavail) * s.Bsize
}

// fill takes space until so many bytes are free, or, for 0, until not one more is
// to be had.
func (d smallDisk) fill(t *testing.T, left int64) {
	t.Helper()
	f, err := os.OpenFile(d.ballast(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for step := d.free(t) - left; step > 0; {
		size, err := f.Seek(0, 2)
		if err != nil {
			t.Fatal(err)
		}
		switch err := syscall.Fallocate(int(f.Fd()), 0, size, step); {
		case errors.Is(err, syscall.ENOSPC): // the file system needs some of it itself
			step /= 2
			continue
		case err != nil:
			t.Fatal(err)
		}
		step = min(step, d.free(t)-left)
	}
	if free := d.free(t); left == 0 && free > 64<<10 {
		t.Fatalf("%d bytes of %s are still free", free, d.mount)
	}
}

// empty gives the space back.
func (d smallDisk) empty(t *testing.T) {
	t.Helper()
	if err := os.Remove(d.ballast()); err != nil {
		t.Fatal(err)
	}
}

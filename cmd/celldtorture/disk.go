package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"
)

// disks are the file systems of the nodes, each in an image of its own; or, without
// power cuts, none.
type disks struct {
	images map[string]string // by node
	mounts map[string]string
}

var nodeNames = []string{"n1", "n2", "n3"}

const imageBytes = 4 << 30 // sparse

// newDisks lays an image below dir for each node of the cell. The node's folder is
// a symbolic link into it, which leads nowhere while the image is not mounted: a
// node that is started then fails instead of beginning anew beside its data.
func newDisks(dir string, power bool) (*disks, error) {
	d := &disks{images: map[string]string{}, mounts: map[string]string{}}
	if !power {
		return d, nil
	}
	if err := os.MkdirAll(filepath.Join(dir, "cells", cell), 0o700); err != nil {
		return nil, err
	}
	for _, node := range nodeNames {
		if err := d.add(dir, node); err != nil {
			return nil, errors.Join(err, d.close())
		}
	}
	return d, nil
}

func (d *disks) add(dir, node string) error {
	image, mount := filepath.Join(dir, "disk-"+node+".img"), filepath.Join(dir, "disk-"+node)
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(imageBytes), f.Close(), os.Mkdir(mount, 0o700)); err != nil {
		return err
	}
	if err := command("mkfs.ext4", "-q", image); err != nil {
		return err
	}
	d.images[node] = image
	if err := d.mountAt(node, mount); err != nil {
		return err
	}
	inside := filepath.Join(mount, "data")
	return errors.Join(os.Mkdir(inside, 0o700), os.Symlink(inside, filepath.Join(dir, "cells", cell, node)))
}

// mountAt mounts a node's image; from then on close unmounts it.
func (d *disks) mountAt(node, mount string) error {
	if err := command("mount", "-o", "loop", d.images[node], mount); err != nil {
		return err
	}
	d.mounts[node] = mount
	return nil
}

// cut takes the power from a node's file system: nothing more reaches it, and what
// was not fsynced is gone.
func (d *disks) cut(node string) error {
	const (
		shutdown   = 0x8004587D // EXT4_IOC_SHUTDOWN
		noLogFlush = 2
	)
	f, err := os.Open(d.mounts[node])
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // opened to be told apart from, nothing is written
	flags := uint32(noLogFlush)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), shutdown, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		return fmt.Errorf("cut the power of %s: %w", d.mounts[node], errno)
	}
	return nil
}

// restore brings a node's file system back. Its processes are dead; one that was
// started meanwhile fails at once, and until it is gone the mount is busy.
func (d *disks) restore(ctx context.Context, node string) error {
	mount := d.mounts[node]
	err := until(ctx, 30*time.Second, "unmount "+mount, func(context.Context) (bool, error) {
		err := command("umount", mount)
		return err == nil, err
	})
	if err != nil {
		return err
	}
	delete(d.mounts, node)
	return d.mountAt(node, mount)
}

func (d *disks) close() error {
	var err error
	for _, mount := range d.mounts {
		err = errors.Join(err, command("umount", mount))
	}
	return err
}

func command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return nil
}

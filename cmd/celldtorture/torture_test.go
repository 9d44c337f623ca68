package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// build makes the celld that dies where it is asked to.
func build(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "celld")
	out, err := exec.Command("go", "build", "-tags", "failpoints", "-o", file, "celld/cmd/celld").CombinedOutput()
	if err != nil {
		t.Fatalf("build celld: %v\n%s", err, out)
	}
	return file
}

// TestShort is a short run of what make torture does for long.
func TestShort(t *testing.T) {
	o := &options{Cycles: 6, Tenants: 4, Faults: []string{"kill", "failpoint"}, Celld: build(t), Dir: t.TempDir()}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := tryPower(t); err != nil {
		t.Logf("without power cuts, which cannot be made here: %v", err)
	} else {
		o.Power = true
	}
	var out strings.Builder
	err := run(t.Context(), o, &out)
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "6 cycles in ") || !strings.Contains(out.String(), " 0 lost, 0 twice") {
		t.Error("the report does not say what was done")
	}
}

// tryPower makes a small file system, cuts its power and brings it back.
func tryPower(t *testing.T) error {
	if os.Geteuid() != 0 {
		return errors.New("they need root")
	}
	d := &disks{images: map[string]string{}, mounts: map[string]string{}}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "cells", cell), 0o700); err != nil {
		t.Fatal(err)
	}
	err := d.add(dir, "n1")
	if err == nil {
		err = errors.Join(d.cut("n1"), d.restore(t.Context(), "n1"))
	}
	return errors.Join(err, d.close())
}

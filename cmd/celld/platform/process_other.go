//go:build !linux

package platform

import "syscall"

// endWithParent has nothing to set here: the child ends when its standard input
// does.
func endWithParent(*syscall.SysProcAttr) {}

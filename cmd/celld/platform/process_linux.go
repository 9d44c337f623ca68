package platform

import "syscall"

// endWithParent has the kernel kill the child when its parent dies.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

package room

import "syscall"

func statfs(dir string) (Usage, error) {
	var s syscall.Statfs_t
	for {
		err := syscall.Statfs(dir, &s)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return Usage{}, err
		}
		size := uint64(s.Bsize)
		return Usage{Free: s.Bavail * size, Total: s.Blocks * size, FreeFiles: s.Ffree, Files: s.Files}, nil
	}
}

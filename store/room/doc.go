// Package room watches how much space is left on the file system of a member's
// data, so that a member stops taking on work before its disk is full.
//
// # Levels
//
//	Ample  everything is written
//	Short  free space is below the reserve: nothing new is accepted, a leader
//	       hands over; what the group has accepted already is still written
//	None   free space is below a quarter of the reserve: nothing is written any
//	       more, apply waits, open transactions stay open
//
// A level is left for a better one only with an eighth of the reserve to spare,
// so that a member does not change its mind with every file that comes and goes.
// Free inodes count as well as free bytes.
//
// # Goroutines and locks
//
// A Room owns one goroutine, which looks once a second; Close waits for it. Look
// looks at once, for one system call. Reading the level is one atomic load. A nil
// *Room is always Ample.
package room

//go:build !failpoints

package failpoint

// Here marks a step.
func Here(Name) {}

//go:build race

package e2e

// raceDetector says whether the tests run with it; then celld does too.
const raceDetector = true

// Package e2e holds the end-to-end tests: a whole platform, as `celld dev` runs
// it, and clients that know nothing of it but its HTTP APIs, its credentials
// file and the process ids of its members. There is no program text in it.
//
// # What is shown where
//
//   - matrix_test.go: every route of the route table, every kind of object id and
//     every kind of caller, against the adversarial fixture. A route without an
//     entry in expectations_test.go fails the test.
//   - forged_test.go, cellport_test.go: identity headers from outside change
//     nothing, and a cell's port refuses whoever has no valid context.
//   - idempotency_test.go, version_test.go, freshness_test.go, cursor_test.go,
//     badinput_test.go: the rules of the API under parallel callers and odd input.
//   - tour_test.go, session_test.go, import_test.go: what a newcomer does, across
//     a restart.
//   - removal_test.go, founding_test.go: gateways that are cut off, put to sleep and
//     killed.
//   - kill_test.go, register_test.go: nodes of a cell that are killed.
//
// # How
//
// TestPlatform starts one platform within the test's process and runs the tests
// that can share it as its subtests; each of those makes tenants of its own. The
// tests that break something start a platform of their own.
//
// Every request goes through one http.Client whose transport holds the request's
// answer against openapi.yaml (package openapitest) and fails the test when the
// description does not know it. No test sleeps: where something takes its time,
// the test asks again until it is so or the test's deadline is over.
//
// TestDeath kills ten members in turn; -e2e.rounds says how many. With -race the
// isolated processes run under the race detector too, and a report of it in the log
// fails the test. -v prints what was measured.
//
// # Goroutines
//
// Each test waits for the goroutines that it starts. A platform is stopped by the
// cleanup of the test that started it, and TestMain checks that nothing is left.
package e2e

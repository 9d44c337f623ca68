// Package openapitest holds what a test run sends and gets against an OpenAPI
// document. It is for tests; nothing else imports it.
//
// A Checker's transport passes requests on and compares each answer with the
// document: the operation must know the status, the content type, the headers and
// the body. A request that was accepted must be one that the document accepts. An
// answer to a path or method that the document does not have must be the problem
// that this API answers then.
//
// The checker's counters are guarded by its mutex. It starts no goroutine.
package openapitest

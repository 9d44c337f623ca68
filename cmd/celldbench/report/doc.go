// Package report is what a benchmark says: lines of latency, rate and CPU, ratios,
// single facts, the machine, and what one must know to read them. It prints as
// text, as Markdown (for docs/performance.md) or as one JSON document.
package report

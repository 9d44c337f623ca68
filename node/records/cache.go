package records

import (
	"errors"
	"strconv"

	"github.com/maypok86/otter/v2"
	"github.com/prometheus/client_golang/prometheus"

	"celld/raftfsm/cellfsm"
)

// Audience is a group of roles that see the same part of a record.
type Audience uint8

const (
	Public   Audience = iota + 1 // every member
	Internal                     // those who see the internal part
)

// audiences are all of them.
var audiences = [...]Audience{Public, Internal}

// Key says which record is meant, and for whom it is rendered.
type Key struct {
	Life     cellfsm.Life
	ID       int64
	Kind     cellfsm.Kind
	Audience Audience
}

// Entry is a rendered record. Nobody writes to it.
type Entry struct {
	Body   []byte   // JSON
	Length []string // the values of Content-Length and ETag, ready for a header
	ETag   []string
}

// NewEntry makes an entry of a record's body and version.
func NewEntry(body []byte, version cellfsm.Version) *Entry {
	return &Entry{Body: body, Length: []string{strconv.Itoa(len(body))}, ETag: []string{`"` + strconv.FormatInt(int64(version), 10) + `"`}}
}

// overhead is about what an entry takes beside its body, in bytes: itself, its
// header values, and what the cache keeps for it.
const overhead = 320

// Cache remembers rendered records. A nil *Cache remembers nothing. Its methods may
// be called from any goroutine.
type Cache struct {
	entries *otter.Cache[Key, *Entry]
	hits    prometheus.Counter
	misses  prometheus.Counter
	refused prometheus.Counter
}

// New makes a cache of at most size bytes, nil for none where size is 0. to is where
// its metrics are registered, nil for nowhere.
func New(size int64, to prometheus.Registerer) (*Cache, error) {
	if size < 0 {
		return nil, errors.New("a cache cannot have less than 0 bytes")
	}
	if size == 0 {
		return nil, nil
	}
	entries, err := otter.New(&otter.Options[Key, *Entry]{
		MaximumWeight: uint64(size),
		Weigher:       func(_ Key, e *Entry) uint32 { return uint32(len(e.Body) + overhead) },
		Executor:      func(fn func()) { fn() }, // no goroutines of the cache's own
	})
	if err != nil {
		return nil, err
	}
	c := &Cache{entries: entries}
	lookups := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "celld", Subsystem: "cell", Name: "cache_lookups_total",
		Help: "Reads of one record by whether the cache had it: hit, miss."}, []string{"outcome"})
	c.hits, c.misses = lookups.WithLabelValues("hit"), lookups.WithLabelValues("miss")
	c.refused = prometheus.NewCounter(prometheus.CounterOpts{Namespace: "celld", Subsystem: "cell", Name: "cache_fills_refused_total",
		Help: "Records that were read and not remembered, because the tenant was being written meanwhile."})
	if to == nil {
		return c, nil
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "celld", Subsystem: "cell", Name: name, Help: help}, value)
	}
	for _, m := range []prometheus.Collector{
		lookups, c.refused,
		gauge("cache_bytes", "Bytes that remembered records take.", func() float64 { return float64(entries.WeightedSize()) }),
		gauge("cache_records", "Records that are remembered, once for each audience.", func() float64 { return float64(entries.EstimatedSize()) }),
	} {
		if err := to.Register(m); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Find returns what is remembered, nil for nothing.
func (c *Cache) Find(k Key) *Entry {
	if c == nil {
		return nil
	}
	e, ok := c.entries.GetIfPresent(k)
	if !ok {
		c.misses.Inc()
		return nil
	}
	c.hits.Inc()
	return e
}

// Fill remembers e, whose row was read after the file of p was seen at sequence,
// unless a record of the file has changed since.
func (c *Cache) Fill(p *cellfsm.Presence, sequence uint64, kind cellfsm.Kind, id int64, a Audience, e *Entry) {
	if c == nil || p == nil {
		return // p is nil where the file has lost its place meanwhile
	}
	// In the key's own critical section: a change that comes after the check finds
	// the entry and forgets it.
	c.entries.Compute(Key{p.Life(), id, kind, a}, func(*Entry, bool) (*Entry, otter.ComputeOp) {
		if !p.Unchanged(sequence) {
			c.refused.Inc()
			return nil, otter.CancelOp
		}
		return e, otter.WriteOp
	})
}

// Changed implements cellfsm.Watcher: the record is forgotten for all audiences.
func (c *Cache) Changed(life cellfsm.Life, kind cellfsm.Kind, id int64) {
	for _, a := range audiences {
		c.entries.Invalidate(Key{life, id, kind, a})
	}
}

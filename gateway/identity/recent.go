package identity

import "sync"

// recent is a bounded map that forgets what was not used for long: two
// generations, the younger of which becomes the older when it is full.
type recent[K comparable, V any] struct {
	half int

	mu         sync.RWMutex
	young, old map[K]V
}

func newRecent[K comparable, V any](bound int) *recent[K, V] {
	return &recent[K, V]{half: bound / 2, young: make(map[K]V)}
}

func (c *recent[K, V]) get(k K) (V, bool) {
	c.mu.RLock()
	v, ok := c.young[k]
	if ok {
		c.mu.RUnlock()
		return v, true
	}
	v, ok = c.old[k]
	c.mu.RUnlock()
	if ok {
		c.put(k, v)
	}
	return v, ok
}

func (c *recent[K, V]) put(k K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.young) >= c.half {
		c.old, c.young = c.young, make(map[K]V)
	}
	c.young[k] = v
}

func (c *recent[K, V]) len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.young) + len(c.old)
}

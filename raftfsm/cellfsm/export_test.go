package cellfsm

// AtStep has fn called at each step of Install and Place; its error ends them
// there.
func (s *Space) AtStep(fn func(step string) error) { s.step = fn }

// SwapIsTaken reports whether somebody has the swap lock for writing, or waits for it.
func (s *Space) SwapIsTaken() bool {
	free := s.swap.TryRLock()
	if free {
		s.swap.RUnlock()
	}
	return !free
}

// SwapIsUsed reports whether anybody has the swap lock.
func (s *Space) SwapIsUsed() bool {
	free := s.swap.TryLock()
	if free {
		s.swap.Unlock()
	}
	return !free
}

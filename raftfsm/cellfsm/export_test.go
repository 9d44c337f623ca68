package cellfsm

// AtStep has fn called at each step of Install and Place; its error ends them
// there.
func (s *Space) AtStep(fn func(step string) error) { s.step = fn }

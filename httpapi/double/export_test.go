package double

// Steps returns at how many instants the clock has stopped.
func (s *Server) Steps() int {
	w := s.current()
	w.step.Lock()
	defer w.step.Unlock()
	return w.steps
}

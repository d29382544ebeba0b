package double

// Steps is how many instants the clock has stopped at.
func (s *Server) Steps() int {
	w := s.current()
	w.step.Lock()
	defer w.step.Unlock()
	return w.steps
}

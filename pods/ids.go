package pods

import (
	"fmt"

	"github.com/podyard/podyard/internal/id"
)

// newID is 14 letters and digits.
func (s *Service) newID() (string, error) {
	s.randMu.Lock()
	defer s.randMu.Unlock()
	made, err := id.New(s.rand)
	if err != nil {
		return "", fmt.Errorf("pods: read random bytes for an id: %w", err)
	}
	return made, nil
}

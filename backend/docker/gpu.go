package docker

import (
	"errors"
	"fmt"
	"slices"

	"github.com/moby/moby/api/types/container"

	"github.com/podyard/podyard/pods"
)

// devices is how the engine is asked for the GPUs of s.
func (e engine) devices(s pods.Spec) ([]container.DeviceRequest, error) {
	if s.GPUs == 0 && len(s.Devices) == 0 {
		return nil, nil
	}
	switch {
	case e.podman:
		return nil, errors.New("this engine hands out no GPUs: the Docker API of Podman ignores requests for them")
	case e.cdi && len(s.Devices) > 0:
		names := make([]string, len(s.Devices))
		for i, d := range s.Devices {
			names[i] = "nvidia.com/gpu=" + d
		}
		return []container.DeviceRequest{{Driver: "cdi", DeviceIDs: names}}, nil
	}
	request := container.DeviceRequest{Driver: "nvidia", Capabilities: [][]string{{"gpu"}}, DeviceIDs: s.Devices}
	if len(s.Devices) == 0 {
		request.Count = s.GPUs
	}
	return []container.DeviceRequest{request}, nil
}

// arrived says what is wrong when a container was made without the devices it was to have.
func arrived(want, got []container.DeviceRequest) error {
	same := slices.EqualFunc(want, got, func(a, b container.DeviceRequest) bool {
		return a.Driver == b.Driver && a.Count == b.Count && slices.Equal(a.DeviceIDs, b.DeviceIDs)
	})
	if !same {
		return fmt.Errorf("its GPUs did not arrive: the engine made a container with %d of %d device requests", len(got), len(want))
	}
	return nil
}

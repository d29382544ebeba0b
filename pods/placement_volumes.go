package pods

import (
	"context"
	"fmt"

	"github.com/podyard/podyard/problem"
)

// volumeServers is what a Volumes for several servers has too. A volumes.Service is one.
type volumeServers interface {
	// VolumeServer returns the server that has what is in a volume; empty: none has yet.
	VolumeServer(ctx context.Context, id string) (server string, err error)
	// SettleVolume makes server the one that has what is in a volume, unless one has already. It
	// returns the one that has.
	SettleVolume(ctx context.Context, id, server string) (at string, err error)
}

// errSettled is the error of a placement at another server than the one that has what is in a volume
// of the pod.
var errSettled = problem.New(problem.BadRequest, "what is in the network volume is at another server than the host of the pod")

// volumesServer returns the server whose hosts may have a pod, because of its network volumes; empty:
// any server. What is in a volume stays at the server that mounted it first.
func (s *Service) volumesServer(ctx context.Context, p *Pod) (server string, err error) {
	if s.shared == nil || len(p.Config.Mounts.Network) == 0 {
		return "", nil
	}
	servers, ok := s.volumes.(volumeServers)
	if !ok {
		return s.shared.self(), nil
	}
	for _, m := range p.Config.Mounts.Network {
		at, err := servers.VolumeServer(ctx, m.VolumeID)
		switch {
		case problem.KindOf(err) == problem.NotFound: // it was deleted when the pod was made
		case err != nil:
			return "", fmt.Errorf("pods: find network volume %q: %w", m.VolumeID, err)
		case server != "" && at != "" && at != server:
			return "", problem.Newf(problem.BadRequest, "what is in the network volumes of the pod is at two servers")
		case at != "":
			server = at
		}
	}
	return server, nil
}

// settleVolumes makes the server of a host the one that has what is in the volumes of a pod.
func (s *Service) settleVolumes(ctx context.Context, p *Pod, host string) error {
	if s.shared == nil {
		return nil
	}
	servers, ok := s.volumes.(volumeServers)
	if !ok {
		return nil
	}
	server := s.shared.serverOf(host)
	if server == "" {
		return ErrHostAway // since it was chosen
	}
	for _, m := range p.Config.Mounts.Network {
		at, err := servers.SettleVolume(ctx, m.VolumeID, server)
		switch {
		case problem.KindOf(err) == problem.NotFound:
		case err != nil:
			return fmt.Errorf("pods: settle network volume %q: %w", m.VolumeID, err)
		case at != server:
			return errSettled
		}
	}
	return nil
}

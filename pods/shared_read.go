package pods

import (
	"context"
	"iter"
)

// readers returns what reads the log and the load of a pod at its host. Each may be nil. The
// error is ErrHostAway.
func (s *Service) readers(ctx context.Context, host string) (LogReader, Sampler, error) {
	if h, ok := s.shared.lookUp(ctx, s.clock.Now(), host); ok {
		if s.reach == nil || h.row.Address == "" {
			return nil, nil, nil
		}
		logs, loads, _ := s.reach(h.row.Server, h.row.Address)
		return logs, loads, nil
	}
	h, ok := s.hosts[host]
	switch {
	case ok:
		logs, _ := As[LogReader](h.Runtime)
		loads, _ := As[Sampler](h.Runtime)
		return logs, loads, nil
	case s.shared != nil && host != "":
		return nil, nil, ErrHostAway
	}
	return nil, nil, nil
}

// HostLogs yields what the container of a pod on one of the hosts of New has written. It is for
// another server, which has checked who asks. It asks no server: on other hosts it returns
// ErrHostAway.
func (s *Service) HostLogs(ctx context.Context, id string, q LogQuery) (iter.Seq2[LogLine, error], error) {
	h, err := s.hostOf(ctx, id)
	if err != nil {
		return nil, err
	}
	if logs, ok := As[LogReader](h.Runtime); ok {
		return logs.Logs(ctx, id, q), nil
	}
	return func(func(LogLine, error) bool) {}, nil
}

// HostSample is the load of a pod on one of the hosts of New, for another server as HostLogs is.
func (s *Service) HostSample(ctx context.Context, id string) (Sample, bool) {
	h, err := s.hostOf(ctx, id)
	if err != nil {
		return Sample{}, false
	}
	if loads, ok := As[Sampler](h.Runtime); ok {
		return loads.Sample(ctx, id)
	}
	return Sample{}, false
}

func (s *Service) hostOf(ctx context.Context, id string) (*Host, error) {
	p, err := s.store.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	h, ok := s.hosts[p.Placement.Host]
	if !ok {
		return nil, ErrHostAway
	}
	return h, nil
}

package postgres

import (
	"context"
	"encoding/base64"
	"encoding/binary"

	"github.com/podyard/podyard/serverless/queue"
)

// jobChannel has the events of jobs of other servers.
const jobChannel = "podyard_jobs"

// Events are sent as base64, because ids may have any bytes. A payload has about eventBytes before
// that; what is more than maxEventPayloads is sent as a gap.
const (
	eventBytes       = 5000
	maxEventPayloads = 16
)

// Watch implements queue.JobQueue. f may be called by several goroutines at once. Events of other
// servers take a connection of their own; when it was interrupted, f gets a gap.
func (q *Jobs) Watch(ctx context.Context, f func([]queue.Event)) error {
	gap := func() { f([]queue.Event{{Kind: queue.EventGap}}) }
	return q.s.watch(ctx, jobChannel, func(ctx context.Context) error { return q.hub.Watch(ctx, f, gap) }, gap, func(payload string) {
		if evs, ok := decodeEvents(payload); ok {
			f(evs)
		} else {
			gap()
		}
	})
}

// publish sends events after their commit.
func (q *Jobs) publish(ctx context.Context, evs []queue.Event) {
	if len(evs) == 0 {
		return
	}
	q.hub.Notify(evs)
	for _, payload := range encodeEvents(evs, q.sizes) {
		q.s.notify(ctx, jobChannel, payload)
	}
}

// encodeEvents returns payloads with the events. Jobs of an endpoint that are ready are one event.
func encodeEvents(evs []queue.Event, z *sizes) (payloads []string) {
	var b []byte
	ready := map[string]bool{}
	for _, e := range evs {
		if e.Kind == queue.EventReady {
			if ready[e.Endpoint] {
				continue
			}
			ready[e.Endpoint] = true
			e.ID = ""
		}
		if len(b) > 0 && len(b)+len(e.Endpoint)+len(e.ID)+len(e.Worker)+8 > z.eventBytes {
			payloads = append(payloads, base64.StdEncoding.EncodeToString(b))
			b = nil
		}
		b = append(b, byte(e.Kind))
		for _, text := range [...]string{e.Endpoint, string(e.ID), string(e.Worker)} {
			b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
		}
		if len(payloads) == z.events || base64.StdEncoding.EncodedLen(len(b)) > maxPayload {
			return []string{base64.StdEncoding.EncodeToString([]byte{byte(queue.EventGap), 0, 0, 0})}
		}
	}
	return append(payloads, base64.StdEncoding.EncodeToString(b))
}

func decodeEvents(payload string) (evs []queue.Event, ok bool) {
	b, err := base64.StdEncoding.DecodeString(payload)
	if err != nil {
		return nil, false
	}
	for len(b) > 0 {
		e := queue.Event{Kind: queue.EventKind(b[0])}
		b = b[1:]
		var texts [3]string
		for i := range texts {
			n, size := binary.Uvarint(b)
			if size <= 0 || n > uint64(len(b)-size) {
				return nil, false
			}
			texts[i] = string(b[size : size+int(n)])
			b = b[size+int(n):]
		}
		e.Endpoint, e.ID, e.Worker = texts[0], queue.JobID(texts[1]), queue.WorkerID(texts[2])
		evs = append(evs, e)
	}
	return evs, true
}

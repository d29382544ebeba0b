package config

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/nvidia"
	"github.com/podyard/podyard/pods"
)

// withoutGPUs is an engine that hands out none.
type withoutGPUs struct{ pods.Runtime }

func (withoutGPUs) Capabilities() pods.Capabilities { return pods.Capabilities{} }

func TestGPUsThatNoPodCouldGetAreNotOffered(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := &Parts{config: Default(), log: slog.New(slog.NewTextHandler(&log, nil))}
	p.gpus.types, p.gpus.devices = nvidia.Inventory([]nvidia.Device{{UUID: "GPU-a", Name: "NVIDIA GeForce RTX 4090", Memory: 24 << 30}})
	cat, hosts := p.hosts(withoutGPUs{})
	if len(cat.GPUs) > 0 || len(hosts[0].GPUs) > 0 || !strings.Contains(log.String(), "not offered") {
		t.Errorf("types %v, devices %v, log %q; want neither, and why", cat.GPUs, hosts[0].GPUs, log.String())
	}
	if cat, hosts := p.hosts(memory.NewRuntime(nil)); len(cat.GPUs) != 1 || len(hosts[0].GPUs) != 1 {
		t.Errorf("types %v, devices %v of a runtime that hands them out, want one", cat.GPUs, hosts[0].GPUs)
	}
}

//go:build !linux

package process

type sampler struct{}

func (sampler) measure(*proc) (usage, bool) { return usage{}, false }

func machineMemory() int64 { return 0 }

type oomCounter struct{}

func (oomCounter) count() uint64 { return 0 }

func (oomCounter) since(uint64) bool { return false }

package httpapi

import (
	"fmt"
	"time"

	"github.com/podyard/podyard/pods"
)

// A podBody is a pod on the wire (docs/interface.md 2.1 and the public schema).
type podBody struct {
	ID      string        `json:"id"`
	Name    string        `json:"name"`
	Status  pods.Status   `json:"status"`
	Actions []pods.Action `json:"actions"`
	Image   string        `json:"image"`
	commandBody
	Disk             int               `json:"disk"`
	Ports            []string          `json:"ports"`
	Env              map[string]string `json:"env"`
	Registry         *string           `json:"registry"`
	Mounts           mountsBody        `json:"mounts"`
	GPU              *gpuBody          `json:"gpu,omitempty"`
	CPU              *cpuBody          `json:"cpu,omitempty"`
	Cloud            pods.Cloud        `json:"cloud"`
	DataCenterID     *string           `json:"dataCenterId"`
	CUDAVersion      *string           `json:"cudaVersion"`
	SSH              sshBody           `json:"ssh"`
	Template         *string           `json:"template"`
	Cost             float64           `json:"cost"`
	Locked           bool              `json:"locked"`
	Runtime          *runtimeBody      `json:"runtime"`
	CreatedAt        wireTime          `json:"createdAt"`
	StartedAt        *wireTime         `json:"startedAt"`
	GlobalNetworking networkingBody    `json:"globalNetworking"`
	Cluster          *memberBody       `json:"cluster,omitempty"`
}

// A commandBody is what a container runs: args as it is stored, and the two lists that it says.
type commandBody struct {
	Args       string   `json:"args"`
	Entrypoint []string `json:"entrypoint"`
	Cmd        []string `json:"cmd"`
}

func commandOf(args string) commandBody {
	entrypoint, cmd, _ := pods.ParseCommand(args) // it was checked
	return commandBody{args, orEmpty(entrypoint), orEmpty(cmd)}
}

type mountsBody struct {
	Persistent *persistentBody `json:"persistent,omitempty"`
	Network    []networkBody   `json:"network,omitempty"`
}

type persistentBody struct {
	Size int    `json:"size"`
	Path string `json:"path"`
}

type networkBody struct {
	VolumeID string `json:"volumeId"`
	Path     string `json:"path"`
}

type gpuBody struct {
	ID        string `json:"id"`
	Count     int    `json:"count"`
	VCPUCount int    `json:"vcpuCount"` // of all GPUs together, as is Memory
	Memory    int    `json:"memory"`
}

type cpuBody struct {
	ID        string `json:"id"`
	VCPUCount int    `json:"vcpuCount"`
	Memory    int    `json:"memory"`
}

type sshBody struct {
	Proxy  *sshEndpoint `json:"proxy"`
	Direct *sshEndpoint `json:"direct"`
}

type sshEndpoint struct {
	Host     string `json:"host"`
	Port     int    `json:"port"`
	Username string `json:"username"`
	Command  string `json:"command"`
}

type runtimeBody struct {
	Uptime int64       `json:"uptime"`
	GPUs   []gpuLoad   `json:"gpus"`
	CPU    utilization `json:"cpu"`
	Memory utilization `json:"memory"`
	Ports  []portBody  `json:"ports"`
}

type utilization struct {
	Util int `json:"util"`
}

type gpuLoad struct {
	Util       int `json:"util"`
	MemoryUtil int `json:"memoryUtil"`
}

type portBody struct {
	Private int     `json:"private"`
	Public  *int    `json:"public"`
	Type    string  `json:"type"`
	IP      *string `json:"ip"`
}

type networkingBody struct {
	Enabled     bool   `json:"enabled"`
	IP          string `json:"ip,omitempty"`
	InternalDNS string `json:"internalDns,omitempty"`
}

// A wireTime is RFC 3339 in UTC with milliseconds (docs/decisions.md 22).
type wireTime time.Time

func (t wireTime) String() string {
	return time.Time(t).UTC().Format("2006-01-02T15:04:05.000Z")
}

func (t wireTime) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// pod returns p as its owner sees it now.
func (c *call) pod(p *pods.Pod) podBody {
	b := podBody{
		ID: p.ID, Name: p.Name, Status: p.Status(), Actions: pods.Actions(p),
		Image: p.Config.Image, commandBody: commandOf(p.Config.Args), Disk: p.Config.Disk,
		Ports: p.Config.Ports, Env: p.Config.Env, Registry: orNull(p.Config.Registry),
		Mounts: mountsOf(p.Config.Mounts), Cloud: p.Cloud,
		DataCenterID: orNull(p.Placement.DataCenter), CUDAVersion: orNull(p.Seen.CUDA),
		Template: orNull(p.Template), Cost: p.Cost(), Locked: p.Locked,
		CreatedAt: wireTime(p.Created), Cluster: memberOf(p),
	}
	if p.GPU != nil {
		vcpu, memory := c.Pods.Share(p)
		b.GPU = &gpuBody{p.GPU.ID, p.GPU.Count, vcpu, memory}
	}
	if p.CPU != nil {
		b.CPU = &cpuBody{p.CPU.ID, p.CPU.VCPU, p.CPU.Memory}
	}
	if !p.Seen.Started.IsZero() {
		t := wireTime(p.Seen.Started)
		b.StartedAt = &t
	}
	if p.Seen.IP != "" {
		b.GlobalNetworking = networkingBody{true, p.Seen.IP, c.Pods.InternalDNS(p)}
	}
	if c.podSSH != nil && p.Placement.Host != "" {
		b.SSH.Proxy = c.podSSH.endpoint(p.ID)
	}
	if live, ok := c.Pods.RuntimeInfo(c.r.Context(), p); ok {
		b.Runtime = runtimeOf(live)
		b.SSH.Direct = sshOf(live.Ports)
	}
	return b
}

func runtimeOf(l pods.RuntimeInfo) *runtimeBody {
	r := &runtimeBody{
		Uptime: int64(l.Uptime / time.Second),
		GPUs:   make([]gpuLoad, 0, len(l.GPUs)),
		CPU:    utilization{l.CPU}, Memory: utilization{l.Memory},
		Ports: make([]portBody, 0, len(l.Ports)),
	}
	for _, g := range l.GPUs {
		r.GPUs = append(r.GPUs, gpuLoad{g.Util, g.MemoryUtil})
	}
	for _, p := range l.Ports {
		b := portBody{Private: p.Inside(), Type: p.Protocol, IP: orNull(p.IP)}
		if p.Public != 0 {
			b.Public = &p.Public
		}
		r.Ports = append(r.Ports, b)
	}
	return r
}

// sshOf returns the address of a published sshd; nil when there is none.
func sshOf(ports []pods.PortMapping) *sshEndpoint {
	for _, p := range ports {
		if p.Private == 22 && p.Protocol == "tcp" && p.Public != 0 && p.IP != "" {
			return &sshEndpoint{p.IP, p.Public, "root", fmt.Sprintf("ssh root@%s -p %d", p.IP, p.Public)}
		}
	}
	return nil
}

func mountsOf(m pods.Mounts) (b mountsBody) {
	if p := m.Persistent; p != nil {
		b.Persistent = &persistentBody{p.Size, p.Path}
	}
	for _, n := range m.Network {
		b.Network = append(b.Network, networkBody{n.VolumeID, n.Path})
	}
	return b
}

// orNull returns nil for an empty string, which is written as null.
// orNever returns nil for an instant that never was.
func orNever(t time.Time) *wireTime {
	if t.IsZero() {
		return nil
	}
	return (*wireTime)(&t)
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
